"""Lower bounds of a batch: the bytes of recorded sessions, sent to `cat` in containers and back over their attached streams."""

import asyncio

from . import recorded
from .floors import RawEcho

VARIANTS = {}


async def _echo(echo, task):
    outputs = [await echo.run("echo", block["code"] + "\n") for block in task["blocks"]]
    if outputs != [block["code"] + "\n" for block in task["blocks"]]:
        raise recorded.WrongOutput(f"{outputs!r} came back")


async def attached(tasks, concurrency):
    """Send the blocks over as many streams, which have been attached before: nothing is started and no code runs."""
    streams = [RawEcho() for _ in range(concurrency)]
    free = asyncio.Queue()
    try:
        await asyncio.gather(*(stream.start() for stream in streams))
        for stream in streams:
            free.put_nowait(stream)

        async def one(task):
            stream = await free.get()
            try:
                await _echo(stream, task)
            finally:
                free.put_nowait(stream)

        return await recorded.run_all(one, tasks, concurrency)
    finally:
        for stream in streams:
            await stream.stop()


async def fresh(tasks, concurrency):
    """Send the blocks of each task to a container of its own: the most that the engine can do, before any code runs."""

    async def one(task):
        stream = RawEcho()
        await stream.start()
        try:
            await _echo(stream, task)
        finally:
            await stream.stop()

    return await recorded.run_all(one, tasks, concurrency)


PROBES = {"batch, echo over attached streams": attached, "batch, echo, a container for each task": fresh}
