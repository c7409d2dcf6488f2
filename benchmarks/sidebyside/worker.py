"""Holds the arms of one environment in a process of their own: requests in, figures out, one JSON object a line.

python -m sidebyside.worker MODULE [MODULE …]
"""

import asyncio
import importlib
import json
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from .arm import WrongAnswer

ANSWER = "42\n"
FIRST = {"python": "print(6 * 7)", "sh": "echo $((6 * 7))", "echo": ANSWER}
# Libraries that block in threads would else be measured by the size of asyncio's own pool.
THREADS = 64


class Worker:
    """Arms by key.

    Args:
        modules: Names of the modules that have them.
    """

    def __init__(self, modules):
        self.kinds, self.probes, self.alive = {}, {}, {}
        for name in modules:
            module = importlib.import_module(f"{__package__}.{name}")
            self.kinds |= module.ARMS
            self.probes |= getattr(module, "PROBES", {})

    async def arms(self):
        """What there is, and what it runs."""
        return {name: list(make().languages) for name, make in self.kinds.items()}

    async def open(self, arm, keys, at_once=8):
        """Start arms; seconds to the first result of each."""
        turns = asyncio.Semaphore(at_once)

        async def one(key):
            async with turns:
                made = self.kinds[arm]()
                await made.prepare()
                try:
                    began = time.perf_counter()
                    await made.start()
                    self.alive[key] = made
                    language = made.languages[0]
                    check(await made.run(language, FIRST[language]), ANSWER)
                except BaseException:
                    await self.drop(key, made)
                    raise
                return time.perf_counter() - began

        found = await asyncio.gather(*(one(key) for key in keys), return_exceptions=True)
        errors = [result for result in found if isinstance(result, BaseException)]
        if errors:
            await self.close([key for key in keys if key in self.alive])
            raise errors[0]
        return found

    async def drop(self, key, arm):
        """End what did not come up."""
        self.alive.pop(key, None)
        with suppress(Exception):
            await arm.stop()
        with suppress(Exception):
            await arm.clear()

    async def run(self, key, language, code, times, expect=ANSWER):
        """Run a block several times; the seconds of each."""
        arm, seconds = self.alive[key], []
        for _ in range(times):
            began = time.perf_counter()
            answer = await arm.run(language, code)
            seconds.append(time.perf_counter() - began)
            if expect is not None:
                check(answer, expect)
        return seconds

    async def together(self, keys, count, language, code):
        """Run `count` blocks at once on each arm; the seconds until all are done."""

        async def one(key):
            check(await self.alive[key].run_beside(language, code), ANSWER)

        began = time.perf_counter()
        await asyncio.gather(*(one(key) for key in keys for _ in range(count)))
        return time.perf_counter() - began

    async def close(self, keys):
        """Stop arms; the seconds that each one's stop took."""

        async def one(key):
            arm = self.alive.pop(key)
            began = time.perf_counter()
            try:
                await arm.stop()
                return time.perf_counter() - began
            finally:
                await arm.clear()

        return await asyncio.gather(*(one(key) for key in keys))

    async def probe(self, name, key=None, **arguments):
        """Measure something else; the probe's own result, or the seconds it took."""
        began = time.perf_counter()
        probe = self.probes[name]
        found = await (probe(**arguments) if key is None else probe(self.alive[key], **arguments))
        return time.perf_counter() - began if found is None else found

    async def answer(self, request):
        """Do what is asked."""
        try:
            return {"ok": await getattr(self, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - the harness decides
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"[:300]}


def check(answer, expect):
    """See that an answer is right."""
    if answer.rstrip("\n") != expect.rstrip("\n"):
        raise WrongAnswer(f"{answer[-200:]!r} instead of {expect[-200:]!r}")


async def main():
    """Serve until standard input ends; what libraries print goes to standard error."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        worker = Worker(sys.argv[1:])
        while line := await asyncio.to_thread(sys.stdin.readline):
            answers.write(json.dumps(await worker.answer(json.loads(line))) + "\n")
            answers.flush()
        await worker.close(list(worker.alive))


if __name__ == "__main__":
    asyncio.run(main())
