"""Compare batches of agent runs with those of other libraries, in one run on one machine: tasks a minute and processor time.

    python benchmarks/batch.py              # about 8 minutes on a quiet machine; writes docs/benchmarks-batch.md
    python benchmarks/batch.py --minutes 6  # the same, and after 6 minutes no further chunk of tasks begins
    python benchmarks/batch.py --quick      # about 3 minutes: fewer tasks, concurrency 1 and 8
    python benchmarks/batch.py --tiny       # a few tasks of each variant, to check that it works; writes no page
    python benchmarks/batch.py --page       # writes the page from the figures of the last runs

`batch_many.py` and `paused.py` measure the other parts of the page. Needs a Docker engine with the sandbox image (`make image`),
bubblewrap, the recorded sessions, and a package registry for the other libraries.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

from sidebyside import batch_page, page, processor_time, recorded
from sidebyside.batch_variants import (
    AUTOGEN,
    ECHO,
    ECHO_FRESH,
    JUPYTER,
    OURS,
    OURS_BUBBLEWRAP,
    SHARED,
    SMOLAGENTS,
    VARIANTS,
)
from sidebyside.environments import ROOT, WHERE, Missing, libraries_image
from sidebyside.harness import Failed, Remote, without_local_paths

FIGURES = WHERE / "batch.json"
PAGE = ROOT / "docs/benchmarks-batch.md"
SESSIONS = 300
IDLE_S = 2.0
CHUNK_TIMEOUT_S = 900


@dataclass(frozen=True)
class Chunk:
    """Tasks that one variant runs, one after the other chunk of another variant.

    Args:
        tasks: How many.
        times: How many such chunks.
    """

    tasks: int
    times: int = 1


# What the targets need comes first.
FULL = {
    8: {
        OURS: Chunk(100, 3),
        OURS_BUBBLEWRAP: Chunk(100, 2),
        AUTOGEN: Chunk(16, 3),
        SHARED: Chunk(50),
        JUPYTER: Chunk(8, 2),
        SMOLAGENTS: Chunk(16, 2),
    },
    32: {
        OURS: Chunk(150, 2),
        OURS_BUBBLEWRAP: Chunk(150),
        AUTOGEN: Chunk(32, 2),
        SHARED: Chunk(50),
        JUPYTER: Chunk(32),
        SMOLAGENTS: Chunk(32),
        ECHO: Chunk(300, 3),
        ECHO_FRESH: Chunk(100, 2),
    },
    1: {
        OURS: Chunk(20, 2),
        OURS_BUBBLEWRAP: Chunk(20),
        AUTOGEN: Chunk(2, 2),
        SHARED: Chunk(15),
        JUPYTER: Chunk(1, 2),
        SMOLAGENTS: Chunk(3, 2),
    },
}
QUICK = {
    1: {OURS: Chunk(15), OURS_BUBBLEWRAP: Chunk(15), AUTOGEN: Chunk(2), JUPYTER: Chunk(1), SMOLAGENTS: Chunk(2)},
    8: {
        OURS: Chunk(50, 2),
        OURS_BUBBLEWRAP: Chunk(50, 2),
        AUTOGEN: Chunk(8, 2),
        SHARED: Chunk(30),
        JUPYTER: Chunk(8),
        SMOLAGENTS: Chunk(8, 2),
    },
}
TINY = {2: {variant: Chunk(3) for variant in VARIANTS}}


class Run:
    """One run of this program.

    Args:
        seed: Seed of the random order and of the samples.
        minutes: After which no further chunk begins. Default: no limit.
    """

    def __init__(self, seed, minutes=None):
        self.until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self.chance = random.Random(seed)
        self.tasks = recorded.tasks(SESSIONS)
        self.chunks = defaultdict(lambda: defaultdict(list))
        self.background = {}
        self.absent = {}
        self.remotes = {}

    async def measure(self, plan):
        """Measure all variants of a plan and return the figures."""
        await self._start({VARIANTS[variant].environment for variants in plan.values() for variant in variants})
        try:
            for concurrency, variants in plan.items():
                await self._at(concurrency, variants)
        finally:
            await asyncio.gather(*(remote.stop() for remote in self.remotes.values()))
        return {
            "sessions": len(self.tasks),
            "blocks": sum(len(task["blocks"]) for task in self.tasks),
            "chunks": self.chunks,
            "background": self.background,
            "absent": self.absent,
            "versions": {
                remote.environment.shown: remote.version for remote in self.remotes.values() if remote.version
            },
            "machine": page.machine(),
        }

    async def _start(self, names):
        try:
            image = await asyncio.to_thread(libraries_image)
        except Missing as error:
            image, names = "", {"own"}
            self._miss("the other libraries", error)
        for name in sorted(names):
            modules = tuple({each.module: None for each in VARIANTS.values() if each.environment == name})
            remote = Remote(name, modules)
            try:
                await remote.start(image)
                self.remotes[name] = remote
            except (Missing, Failed) as error:
                self._miss(name, error)

    async def _at(self, concurrency, variants):
        before = processor_time.read()
        await asyncio.sleep(IDLE_S)
        self.background[str(concurrency)] = processor_time.since(before)["machine"] / IDLE_S
        for variant in self.order(variants):
            if time.monotonic() > self.until:
                if variant not in self.chunks[str(concurrency)]:
                    self._miss(f"{variant}, {concurrency} at once", "the time was over")
                continue
            # Each chunk is a random sample.
            tasks = self.chance.sample(self.tasks, variants[variant].tasks)
            await self._chunk(variant, concurrency, tasks)

    def order(self, variants):
        """Return the variants in the order of their chunks: random, but the first chunk of each comes before second ones."""
        rounds = max(chunk.times for chunk in variants.values())
        each = [[variant for variant, chunk in variants.items() if chunk.times > number] for number in range(rounds)]
        return [variant for some in each for variant in self.chance.sample(some, len(some))]

    async def _chunk(self, variant, concurrency, tasks):
        made = VARIANTS[variant]
        if variant in self.absent or made.environment not in self.remotes:
            return
        try:
            found = await self.remotes[made.environment].request(
                "probe",
                timeout_s=CHUNK_TIMEOUT_S,
                name=made.probe,
                tasks=tasks,
                concurrency=concurrency,
                **made.arguments,
            )
        except Failed as error:
            self._miss(variant, error)
            return
        wrong = [task["wrong"] for task in found["tasks"] if task["wrong"]]
        if wrong:
            # A variant that gives a wrong answer has no time.
            self._miss(variant, f"wrong answer: {wrong[0]}")
            for chunks in self.chunks.values():
                chunks.pop(variant, None)
            return
        if failed := [task["errors"][-1] for task in found["tasks"] if task["failed"]]:
            print(f"{variant}: {len(failed)} of {len(tasks)} tasks failed: {failed[0]}", file=sys.stderr)
            if len(failed) == len(tasks):
                self._miss(f"{variant}, {concurrency} at once", failed[0])
                return
        self.chunks[str(concurrency)][variant].append(found)
        print(
            f"{time.strftime('%H:%M:%S')} {concurrency:3} at once, {variant}: {len(tasks)} tasks, "
            f"{batch_page.rate([found])[0]:.1f} tasks/min",
            file=sys.stderr,
        )

    def _miss(self, name, reason):
        self.absent[name] = without_local_paths(str(reason))
        print(f"not measured: {name}: {reason}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quick", action="store_true", help="fewer tasks, and concurrency 1 and 8 only")
    group.add_argument("--tiny", action="store_true", help="a few tasks of each variant; writes no page")
    group.add_argument("--page", action="store_true", help="write the page from the figures of the last runs")
    parser.add_argument("--seed", type=int, default=0, help="of the random order and of the samples")
    parser.add_argument("--minutes", type=float, help="after which no further chunk of tasks begins")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    if not options.page:
        began = time.monotonic()
        plan = QUICK if options.quick else TINY if options.tiny else FULL
        figures = asyncio.run(Run(options.seed, options.minutes).measure(plan))
        figures["note"], figures["took_s"] = options.note, time.monotonic() - began
        WHERE.mkdir(exist_ok=True)
        (FIGURES.with_name("batch-tiny.json") if options.tiny else FIGURES).write_text(json.dumps(figures))
        if options.tiny:
            print(batch_page.rates(figures))
            ours = [name for name in figures["absent"] if name.startswith((OURS, OURS_BUBBLEWRAP))]
            sys.exit(1 if ours else 0)
    text = batch_page.page(WHERE)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
