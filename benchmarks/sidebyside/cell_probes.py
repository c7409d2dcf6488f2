"""What blocks use beside their time: processor time by where it is spent, and what the machine counts meanwhile."""

import asyncio
import time

from . import processor_time
from .paused_blocks import counters
from .worker import check

VARIANTS = {}


async def _measured(work, count):
    before, used, began = counters(), processor_time.read(), time.perf_counter()
    await work()
    seconds = time.perf_counter() - began
    processor, after = processor_time.since(used), counters()
    return {"count": count, "seconds": seconds, "processor": processor, **{x: after[x] - before[x] for x in before}}


async def blocks(variants, language, code, times, expect):
    """Run blocks one after the other on the first sandbox, and return what they use."""

    async def work():
        for _ in range(times):
            check(await variants[0].run(language, code), expect)

    return await _measured(work, times)


async def together(variants, language, code, times, expect):
    """Run a block on each sandbox at the same time, several times, and return what they use."""

    async def one(variant):
        check(await variant.run_concurrently(language, code), expect)

    async def work():
        for _ in range(times):
            await asyncio.gather(*map(one, variants))

    return await _measured(work, times * len(variants))


async def rollbacks(variants, sessions):
    """Return a session of ours to its beginning, after a block, and return what the rollbacks use, without the blocks."""
    (variant, *_), found = variants, []
    await variant.executor.checkpoint()
    for _ in range(sessions):
        check(await variant.run("python", "print(6 * 7)"), "42\n")
        found.append(await _measured(variant.executor.rollback, 1))
    return _sum(found)


async def sessions(variants, sessions):
    """Run recorded sessions and return what they use; where nothing is kept, each block runs with those before it.

    A session of ours is returned to its beginning before each of them.
    """
    (variant, *_) = variants
    keeps = hasattr(variant.executor, "rollback")
    if keeps:
        await variant.executor.checkpoint()

    async def work():
        for steps in sessions:
            if keeps:
                await variant.executor.rollback()
            codes = [code for code, _ in steps]
            for number, (code, expect) in enumerate(steps, 1):
                output = await variant.run("python", code if keeps else "\n".join(codes[:number]))
                check(
                    output if keeps or not expect else output[-len(expect) - 1 :], expect if keeps or expect else output
                )

    return {**await _measured(work, len(sessions)), "blocks": sum(map(len, sessions))}


def _sum(found):
    first = found[0]
    processor = {
        name: None if value is None else sum(each["processor"][name] for each in found)
        for name, value in first["processor"].items()
    }
    names = [name for name in first if name != "processor"]
    return {**{name: sum(each[name] for each in found) for name in names}, "processor": processor}


PROBES = {
    "use of blocks": blocks,
    "use of blocks together": together,
    "use of rollbacks": rollbacks,
    "use of sessions": sessions,
}
