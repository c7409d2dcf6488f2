"""Compare batches of agent runs with those of other libraries, in one run on one machine: tasks a minute and processor time.

    python benchmarks/batch.py               # 7 minutes on a quiet machine; writes parts of docs/benchmarks.md
    python benchmarks/batch.py --minutes 15  # longer, with more tasks of each; the first 6 minutes fill the table once
    python benchmarks/batch.py --tiny        # a few tasks of each variant, to check that it works; writes no page
    python benchmarks/batch.py --page        # writes the page from the figures of the last runs

`batch_many.py` and `paused.py` measure the rest of these parts. Needs a Docker engine with the sandbox
image (`make image`), bubblewrap, the recorded sessions, and a package registry for the other libraries.
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
PAGE = ROOT / "docs/benchmarks.md"
SESSIONS = 300
IDLE_S = 2.0
CHUNK_TIMEOUT_S = 900
MINUTES = 6.5


@dataclass(frozen=True)
class Chunk:
    """Tasks that one variant runs, one after the other chunk of another variant.

    Args:
        tasks: How many.
        times: How many such chunks.
    """

    tasks: int
    times: int = 1


# The first chunk of each takes 6 minutes together; further ones follow while there is time. What matters most has more of them.
PLAN = {
    (8, OURS): Chunk(64, 3),
    (8, OURS_BUBBLEWRAP): Chunk(100, 2),
    (8, AUTOGEN): Chunk(16, 3),
    (8, SHARED): Chunk(50, 2),
    (8, JUPYTER): Chunk(8, 2),
    (8, SMOLAGENTS): Chunk(16, 3),
    (32, OURS): Chunk(80, 3),
    (32, OURS_BUBBLEWRAP): Chunk(120, 2),
    (32, AUTOGEN): Chunk(32, 2),
    (32, SHARED): Chunk(50, 2),
    (32, JUPYTER): Chunk(32),
    (32, SMOLAGENTS): Chunk(32),
    (32, ECHO): Chunk(300, 3),
    (32, ECHO_FRESH): Chunk(80, 3),
    (1, OURS): Chunk(15, 2),
    (1, OURS_BUBBLEWRAP): Chunk(20, 2),
    (1, AUTOGEN): Chunk(2, 2),
    (1, SHARED): Chunk(15, 2),
    (1, JUPYTER): Chunk(2),
    (1, SMOLAGENTS): Chunk(3, 2),
}
TINY = {(2, variant): Chunk(3) for variant in VARIANTS}


class Run:
    """One run of this program.

    Args:
        seed: Seed of the random order and of the samples.
        minutes: After which no further chunk begins. Default: no limit.
        keep: Called with the figures so far after each chunk, so that a run that is stopped has some.
    """

    def __init__(self, seed, minutes=None, keep=lambda figures: None):
        self.until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self.chance = random.Random(seed)
        self.tasks = recorded.tasks(SESSIONS)
        self.chunks = defaultdict(lambda: defaultdict(list))
        self.background = {}
        self.absent = {}
        self.discarded = []
        self.remotes = {}
        self.keep = keep

    async def measure(self, plan):
        """Measure all variants of a plan and return the figures."""
        await self._start({VARIANTS[variant].environment for _, variant in plan})
        try:
            await self._idle("before")
            for cell in self.order(plan):
                if self.is_time_for(cell):
                    await self._cell(*cell, plan[cell].tasks)
                    self.keep(self.figures())
            await self._idle("after")
        finally:
            await asyncio.gather(*(remote.stop() for remote in self.remotes.values()))
        return self.figures()

    def figures(self):
        """Return what has been measured until now."""
        return {
            "sessions": len(self.tasks),
            "blocks": sum(len(task["blocks"]) for task in self.tasks),
            "chunks": self.chunks,
            "background": self.background,
            "absent": self.absent,
            "discarded": self.discarded,
            "versions": {
                remote.environment.shown: remote.version for remote in self.remotes.values() if remote.version
            },
            "machine": page.machine(),
            "day": page.today(),
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

    async def _idle(self, when):
        before = processor_time.read()
        await asyncio.sleep(IDLE_S)
        self.background[when] = processor_time.since(before)["machine"] / IDLE_S

    def order(self, plan):
        """Return the cells in the order of their chunks: random, but the first chunk of each comes before any second one."""
        rounds = max(chunk.times for chunk in plan.values())
        each = [[cell for cell, chunk in plan.items() if chunk.times > number] for number in range(rounds)]
        return [cell for some in each for cell in self.chance.sample(some, len(some))]

    def is_time_for(self, cell):
        """Return whether there is time for a chunk; one that is expected to end too late does not begin."""
        concurrency, variant = cell
        before = self.chunks[str(concurrency)][variant]
        if time.monotonic() + (before[-1]["took_s"] if before else 0.0) < self.until:
            return True
        if not before:
            self._miss(f"{variant}, {concurrency} at once", "the time was over")
        return False

    async def _cell(self, concurrency, variant, count):
        """Run a chunk, and after a wrong output once more with other tasks."""
        for _ in range(2):
            if variant in self.absent or VARIANTS[variant].environment not in self.remotes:
                return
            # Each chunk is a random sample.
            if await self._chunk(concurrency, variant, self.chance.sample(self.tasks, count)):
                return

    async def _chunk(self, concurrency, variant, tasks):
        """Return whether the chunk is over: False if its figures do not count."""
        made, began = VARIANTS[variant], time.monotonic()
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
            return True
        found["took_s"] = time.monotonic() - began
        if wrong := [task["wrong"] for task in found["tasks"] if task["wrong"]]:
            self._wrong(variant, concurrency, wrong)
            return False
        if failed := [task["errors"][-1] for task in found["tasks"] if task["failed"]]:
            print(f"{variant}: {len(failed)} of {len(tasks)} tasks failed: {failed[0]}", file=sys.stderr)
            if len(failed) == len(tasks):
                self._miss(f"{variant}, {concurrency} at once", failed[0])
                return True
        self.chunks[str(concurrency)][variant].append(found)
        print(
            f"{time.strftime('%H:%M:%S')} {concurrency:3} at once, {variant}: {len(tasks)} tasks, "
            f"{batch_page.rate([found])[0]:.1f} tasks/min, {found['took_s']:.1f} s",
            file=sys.stderr,
        )
        return True

    def _wrong(self, variant, concurrency, wrong):
        """Discard a chunk with a wrong output; a variant that gives another one has no time at all."""
        text = without_local_paths(f"{variant}, {concurrency} at once: {wrong[0]}")
        print(f"wrong output: {text}", file=sys.stderr)
        if any(each.startswith(f"{variant}, ") for each in self.discarded):
            self._miss(variant, f"wrong output twice: {wrong[0]}")
            for chunks in self.chunks.values():
                chunks.pop(variant, None)
        self.discarded.append(text)

    def _miss(self, name, reason):
        self.absent[name] = without_local_paths(str(reason))
        print(f"not measured: {name}: {reason}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tiny", action="store_true", help="a few tasks of each variant; writes no page")
    group.add_argument("--page", action="store_true", help="write the page from the figures of the last runs")
    parser.add_argument("--seed", type=int, default=0, help="of the random order and of the samples")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which no further chunk of tasks begins")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    if not options.page:
        WHERE.mkdir(exist_ok=True)
        out, began = FIGURES.with_name("batch-tiny.json") if options.tiny else FIGURES, time.monotonic()

        def keep(figures):
            out.write_text(json.dumps({**figures, "note": options.note, "took_s": time.monotonic() - began}))

        figures = asyncio.run(Run(options.seed, options.minutes, keep).measure(TINY if options.tiny else PLAN))
        keep(figures)
        if options.tiny:
            print(batch_page.rates(figures))
            sys.exit(1 if any(name.startswith("`run_batch`") for name in figures["absent"]) else 0)
    for name, text in batch_page.parts(WHERE).items():
        page.write_part(PAGE, name, text)
        print(text)


if __name__ == "__main__":
    main()
