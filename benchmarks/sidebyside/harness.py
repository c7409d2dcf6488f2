"""Starts the workers and collects what they measure."""

import asyncio
import json
import os
import random
import re
import sys
import uuid
from collections import defaultdict
from pathlib import Path

from .environments import ENVIRONMENTS, ON_BOARD, Missing, libraries_image, python_of, version_of

REQUEST_TIMEOUT_S = 180
TRIES = 3
# Seconds for other work to end after a block broke.
SETTLE_S = 5
LINE_LIMIT = 64 * 1024 * 1024


class Failed(Exception):
    """A variant gave a wrong answer or broke."""


class Remote:
    """A worker in an environment.

    Args:
        name: Which environment.
        modules: Modules of variants and probes. Default: those of the environment.
    """

    def __init__(self, name, modules=()):
        self.name = name
        self.environment = (ENVIRONMENTS | ON_BOARD)[name]
        self.modules = modules or self.environment.modules

    async def start(self, image):
        """Start it and return its variants."""
        python = await asyncio.to_thread(python_of, self.name, self.environment.requirements)
        self.version = version_of(python, self.environment.shown) if self.environment.shown else ""
        self.process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "sidebyside.worker", *self.modules),
            cwd=Path(__file__).parents[1],
            env={**os.environ, "BENCH_IMAGE": image},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_VERBOSE") else asyncio.subprocess.DEVNULL,
            limit=LINE_LIMIT,
        )
        return await self.request("variants")

    async def request(self, do, /, timeout_s=REQUEST_TIMEOUT_S, **arguments):
        """Send a request and return its result.

        Raises:
            Failed: The worker reported an error, ended, or did not answer in time.
        """
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), timeout_s)
        except TimeoutError:
            self.process.kill()
            raise Failed(f"no answer within {timeout_s} s") from None
        if not line:
            raise Failed("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["ok"]

    async def stop(self):
        """Stop it."""
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), REQUEST_TIMEOUT_S)
        except TimeoutError:
            self.process.kill()


class Bench:
    """All variants, and their seconds by measurement (cell) and variant.

    Args:
        names: The environments to use. Default: all.
        seed: Seed of the random order of variants.
    """

    def __init__(self, *, names=tuple(ENVIRONMENTS), seed=0):
        self.names = list(names)
        self.chance = random.Random(seed)
        self.seconds = defaultdict(lambda: defaultdict(list))
        self.facts = {}
        self.failed_starts = defaultdict(int)
        self.failed_rounds = defaultdict(int)
        self.absent = {}
        self.remotes, self.where, self.languages, self.keys = {}, {}, {}, {}

    async def __aenter__(self):
        try:
            image = "" if self.names == ["own"] else await asyncio.to_thread(libraries_image)
        except Missing as error:
            image = ""
            self.miss("every other library in a container of this image", error)
        for name in self.names if image else ["own"]:
            try:
                remote = Remote(name)
                for variant, languages in (await remote.start(image)).items():
                    self.where[variant], self.languages[variant] = remote, languages
                self.remotes[name] = remote
            except (Missing, Failed) as error:
                self.miss(name, error)
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*(remote.stop() for remote in self.remotes.values()))

    def miss(self, name, reason):
        """Record that something could not be measured."""
        self.absent[name] = without_local_paths(str(reason))
        print(f"not measured: {name}: {reason}", file=sys.stderr)

    @property
    def versions(self):
        """Return the versions of the other libraries."""
        return {remote.environment.shown: remote.version for remote in self.remotes.values() if remote.version}

    def shuffled(self, variants):
        """Return the variants that have not failed, in a new random order."""
        order = [variant for variant in variants if variant in self.where and variant not in self.absent]
        self.chance.shuffle(order)
        return order

    async def open(self, variant, count=1, cell=None, at_once=8):
        """Start a variant `count` times and return the keys, or None if it failed."""
        keys = [uuid.uuid4().hex for _ in range(count)]
        request = {"variant": variant, "keys": keys, "at_once": at_once}
        if not await self.start(variant, request, seconds := []):
            return None
        if cell:
            self.seconds[cell][variant] += seconds
        return keys

    async def start(self, variant, request, seconds):
        """Start a variant, in up to three attempts; failed attempts are counted and not timed."""
        for _ in range(TRIES - 1):
            if variant in self.absent or variant not in self.where:
                return False
            try:
                seconds += await self.where[variant].request("open", **request)
            except Failed as error:
                if "WrongAnswer" in str(error):
                    break
                self.failed_starts[variant] += 1
                print(f"{variant} did not start: {error}", file=sys.stderr)
            else:
                return True
        seconds += await self.attempt(variant, "open", **request) or []
        return variant not in self.absent

    async def close(self, variant, keys, cell=None):
        """Stop started variants."""
        if keys and (seconds := await self.attempt(variant, "close", keys=keys)) is not None and cell:
            self.seconds[cell][variant] += seconds

    async def attempt(self, variant, do, /, **arguments):
        """Send a request to the variant's worker; a variant that fails is not measured any further."""
        if variant in self.absent or variant not in self.where:
            return None
        try:
            return await self.where[variant].request(do, **arguments)
        except Failed as error:
            return self.drop(variant, error)

    def drop(self, variant, reason):
        """Discard a variant with all its figures."""
        self.miss(variant, reason)
        for cells in self.seconds.values():
            cells.pop(variant, None)

    async def persist(self, cell, variant, do, /, **arguments):
        """Send a request that may fail sporadically: it is repeated, and a variant that fails each time has no time in this cell.

        The Docker SDK, which the libraries call from many threads, sometimes closes a connection that is in use.
        """
        for _ in range(TRIES):
            if variant in self.absent or variant not in self.where or f"{variant}, {cell}" in self.absent:
                return None
            try:
                return await self.where[variant].request(do, **arguments)
            except Failed as error:
                if "WrongAnswer" in str(error):
                    return self.drop(variant, error)
                self.failed_rounds[variant] += 1
                print(f"{variant} broke: {error}", file=sys.stderr)
                reason = error
                await asyncio.sleep(SETTLE_S)
        self.seconds[cell].pop(variant, None)
        self.miss(f"{variant}, {cell}", reason)
        return None

    async def run(self, cell, variant, *, key, language, code, times, expect="42\n"):
        """Run a block on a started variant."""
        seconds = await self.attempt(variant, "run", key=key, language=language, code=code, times=times, expect=expect)
        if seconds is not None:
            self.seconds[cell][variant] += seconds

    async def fact(self, name, probe, **arguments):
        """Measure something with this project's worker; record the reason if that fails."""
        try:
            self.facts[name] = await self.remotes["own"].request("probe", name=probe, **arguments)
        except Failed as error:
            self.miss(name, error)


def without_local_paths(reason):
    """Return a reason without addresses and paths of this machine."""
    return re.sub(r"\S*(://|/\w+/)\S*", "…", reason)[:100]
