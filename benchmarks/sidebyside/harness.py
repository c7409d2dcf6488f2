"""The workers, and what they measured."""

import asyncio
import json
import os
import random
import re
import sys
import uuid
from collections import defaultdict
from pathlib import Path

from .environments import ENVIRONMENTS, Missing, peers_image, python_of, version_of

REQUEST_TIMEOUT_S = 180
TRIES = 3
# What went on beside a block that broke should be over.
SETTLE_S = 5
LINE_LIMIT = 64 * 1024 * 1024


class Failed(Exception):
    """An arm gave a wrong answer or broke."""


class Remote:
    """A worker in an environment.

    Args:
        name: Which environment.
    """

    def __init__(self, name):
        self.name = name
        self.environment = ENVIRONMENTS[name]

    async def start(self, image):
        """Start it; says what arms it has."""
        python = await asyncio.to_thread(python_of, self.name, self.environment.requirements)
        self.version = version_of(python, self.environment.shown) if self.environment.shown else ""
        self.process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "sidebyside.worker", *self.environment.modules),
            cwd=Path(__file__).parents[1],
            env={**os.environ, "BENCH_IMAGE": image},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_VERBOSE") else asyncio.subprocess.DEVNULL,
            limit=LINE_LIMIT,
        )
        return await self.ask("arms")

    async def ask(self, do, /, **arguments):
        """Have something done.

        Raises:
            Failed: It went wrong.
        """
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), REQUEST_TIMEOUT_S)
        except TimeoutError:
            self.process.kill()
            raise Failed(f"no answer within {REQUEST_TIMEOUT_S} s") from None
        if not line:
            raise Failed("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["ok"]

    async def stop(self):
        """End it."""
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), REQUEST_TIMEOUT_S)
        except TimeoutError:
            self.process.kill()


class Bench:
    """All arms, and the seconds they took by cell and arm.

    Args:
        quick: Whether only our own environment is there.
        seed: Of the order in which arms take turns.
    """

    def __init__(self, *, quick=False, seed=0):
        self.names = ["own"] if quick else list(ENVIRONMENTS)
        self.chance = random.Random(seed)
        self.seconds = defaultdict(lambda: defaultdict(list))
        self.facts = {}
        self.failed_starts = defaultdict(int)
        self.failed_rounds = defaultdict(int)
        self.absent = {}
        self.remotes, self.where, self.languages, self.keys = {}, {}, {}, {}

    async def __aenter__(self):
        try:
            image = "" if self.names == ["own"] else await asyncio.to_thread(peers_image)
        except Missing as error:
            image = ""
            self.miss("every peer in a container of this image", error)
        for name in self.names if image else ["own"]:
            try:
                remote = Remote(name)
                for arm, languages in (await remote.start(image)).items():
                    self.where[arm], self.languages[arm] = remote, languages
                self.remotes[name] = remote
            except (Missing, Failed) as error:
                self.miss(name, error)
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*(remote.stop() for remote in self.remotes.values()))

    def miss(self, name, reason):
        """Note that something has no figures."""
        self.absent[name] = without_places(str(reason))
        print(f"no time for {name}: {reason}", file=sys.stderr)

    @property
    def versions(self):
        """Of the peers."""
        return {remote.environment.shown: remote.version for remote in self.remotes.values() if remote.version}

    def shuffled(self, arms):
        """Those that are still in the race, in a new order."""
        order = [arm for arm in arms if arm in self.where and arm not in self.absent]
        self.chance.shuffle(order)
        return order

    async def open(self, arm, count=1, cell=None, at_once=8):
        """Start lives of an arm; their keys, or None where it failed."""
        keys = [uuid.uuid4().hex for _ in range(count)]
        request = {"arm": arm, "keys": keys, "at_once": at_once}
        if not await self.comes_up(arm, request, seconds := []):
            return None
        if cell:
            self.seconds[cell][arm] += seconds
        return keys

    async def comes_up(self, arm, request, seconds):
        """Start an arm, some peers' at the third try: the time of those that failed counts neither for them nor against them."""
        for _ in range(TRIES - 1):
            if arm in self.absent or arm not in self.where:
                return False
            try:
                seconds += await self.where[arm].ask("open", **request)
            except Failed as error:
                if "WrongAnswer" in str(error):
                    break
                self.failed_starts[arm] += 1
                print(f"{arm} did not start: {error}", file=sys.stderr)
            else:
                return True
        seconds += await self.attempt(arm, "open", **request) or []
        return arm not in self.absent

    async def close(self, arm, keys, cell=None):
        """End lives of an arm."""
        if keys and (seconds := await self.attempt(arm, "close", keys=keys)) is not None and cell:
            self.seconds[cell][arm] += seconds

    async def attempt(self, arm, do, /, **arguments):
        """Ask the arm's worker; an arm that fails is out of the race."""
        if arm in self.absent or arm not in self.where:
            return None
        try:
            return await self.where[arm].ask(do, **arguments)
        except Failed as error:
            return self.drop(arm, error)

    def drop(self, arm, reason):
        """Take an arm out of the race, with all that it has."""
        self.miss(arm, reason)
        for cells in self.seconds.values():
            cells.pop(arm, None)

    async def persist(self, cell, arm, do, /, **arguments):
        """Ask for what may break by itself: it is tried again, and an arm that breaks each time has no time in this cell.

        The Docker SDK, which the peers call from many threads, at times closes a connection that is in use.
        """
        for _ in range(TRIES):
            if arm in self.absent or arm not in self.where or f"{arm}, {cell}" in self.absent:
                return None
            try:
                return await self.where[arm].ask(do, **arguments)
            except Failed as error:
                if "WrongAnswer" in str(error):
                    return self.drop(arm, error)
                self.failed_rounds[arm] += 1
                print(f"{arm} broke: {error}", file=sys.stderr)
                reason = error
                await asyncio.sleep(SETTLE_S)
        self.seconds[cell].pop(arm, None)
        self.miss(f"{arm}, {cell}", reason)
        return None

    async def run(self, cell, arm, *, key, language, code, times, expect="42\n"):
        """Run a block on a living arm."""
        seconds = await self.attempt(arm, "run", key=key, language=language, code=code, times=times, expect=expect)
        if seconds is not None:
            self.seconds[cell][arm] += seconds

    async def fact(self, name, probe, **arguments):
        """Have our own worker measure something; None and a reason where it can't."""
        try:
            self.facts[name] = await self.remotes["own"].ask("probe", name=probe, **arguments)
        except Failed as error:
            self.miss(name, error)


def without_places(reason):
    """A reason without addresses and paths of this machine."""
    return re.sub(r"\S*(://|/\w+/)\S*", "…", reason)[:200]
