"""Runs the variants of one environment in a separate process: requests in, figures out, one JSON object for each line.

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

from .variant import WrongAnswer

ANSWER = "42\n"
FIRST = {"python": "print(6 * 7)", "sh": "echo $((6 * 7))", "echo": ANSWER}
# With asyncio's own pool, its size would limit libraries that block in threads.
THREADS = 64


class Worker:
    """Variants by key.

    Args:
        modules: Names of the modules that contain them.
    """

    def __init__(self, modules):
        self.kinds, self.probes, self.running = {}, {}, {}
        for name in modules:
            module = importlib.import_module(f"{__package__}.{name}")
            self.kinds |= module.VARIANTS
            self.probes |= getattr(module, "PROBES", {})

    async def variants(self):
        """Return the names of the variants with their languages."""
        return {name: list(make().languages) for name, make in self.kinds.items()}

    async def open(self, variant, keys, at_once=8):
        """Start variants and return the seconds to the first result of each."""
        slots = asyncio.Semaphore(at_once)

        async def one(key):
            async with slots:
                made = self.kinds[variant]()
                await made.prepare()
                try:
                    began = time.perf_counter()
                    await made.start()
                    self.running[key] = made
                    language = made.languages[0]
                    check(await made.run(language, FIRST[language]), ANSWER)
                except BaseException:
                    await self.drop(key, made)
                    raise
                return time.perf_counter() - began

        found = await asyncio.gather(*(one(key) for key in keys), return_exceptions=True)
        errors = [result for result in found if isinstance(result, BaseException)]
        if errors:
            await self.close([key for key in keys if key in self.running])
            raise errors[0]
        return found

    async def drop(self, key, variant):
        """Stop a variant that did not start."""
        self.running.pop(key, None)
        with suppress(Exception):
            await variant.stop()
        with suppress(Exception):
            await variant.clear()

    async def run(self, key, language, code, times, expect=ANSWER):
        """Run a block several times and return the seconds of each."""
        variant, seconds = self.running[key], []
        for _ in range(times):
            began = time.perf_counter()
            answer = await variant.run(language, code)
            seconds.append(time.perf_counter() - began)
            if expect is not None:
                check(answer, expect)
        return seconds

    async def output(self, key, language, code, most):
        """Run a block and return the beginning of its output, and how long it is."""
        output = await self.running[key].run(language, code)
        return output[:most], len(output)

    async def tasks(self, variant, count, at_once, blocks):
        """Run tasks, each in a sandbox of its own, and return the seconds until all have ended."""
        slots = asyncio.Semaphore(at_once)

        async def one():
            async with slots:
                made = self.kinds[variant]()
                await made.prepare()
                try:
                    await made.start()
                    for _ in range(blocks):
                        check(await made.run_concurrently("python", FIRST["python"]), ANSWER)
                    await made.stop()
                finally:
                    await made.clear()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return time.perf_counter() - began

    async def together(self, keys, count, language, code):
        """Run `count` blocks concurrently on each variant and return the seconds until all have ended."""

        async def one(key):
            check(await self.running[key].run_concurrently(language, code), ANSWER)

        began = time.perf_counter()
        await asyncio.gather(*(one(key) for key in keys for _ in range(count)))
        return time.perf_counter() - began

    async def close(self, keys):
        """Stop variants and return the seconds of each stop."""

        async def one(key):
            variant = self.running.pop(key)
            began = time.perf_counter()
            try:
                await variant.stop()
                return time.perf_counter() - began
            finally:
                await variant.clear()

        return await asyncio.gather(*(one(key) for key in keys))

    async def probe(self, name, key=None, keys=(), **arguments):
        """Run a probe, with one variant, a list of them or none, and return its result, or its seconds if it has none."""
        began = time.perf_counter()
        if key is not None:
            arguments["variant"] = self.running[key]
        if keys:
            arguments["variants"] = [self.running[each] for each in keys]
        found = await self.probes[name](**arguments)
        return time.perf_counter() - began if found is None else found

    async def answer(self, request):
        """Process a request and return the answer."""
        try:
            return {"ok": await getattr(self, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - the harness decides
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"[:300]}


def check(answer, expect):
    """Check an answer.

    Raises:
        WrongAnswer: It is not the expected one.
    """
    if answer.rstrip("\n") != expect.rstrip("\n"):
        raise WrongAnswer(f"{answer[-200:]!r} instead of {expect[-200:]!r}")


async def main():
    """Process requests until standard input ends; output of the libraries goes to standard error."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        worker = Worker(sys.argv[1:])
        while line := await asyncio.to_thread(sys.stdin.readline):
            answers.write(json.dumps(await worker.answer(json.loads(line))) + "\n")
            answers.flush()
        await worker.close(list(worker.running))


if __name__ == "__main__":
    asyncio.run(main())
