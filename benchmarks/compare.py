"""Compare our executors with lower bounds and other libraries, in one run on one machine.

    python benchmarks/compare.py              # writes a part of docs/benchmarks.md and README's sentence   (make bench)
    python benchmarks/compare.py --tiny       # a few of everything, to check that it works; writes no page

Needs a Docker engine with the sandbox image (`make image`), bubblewrap, and a package registry for the other libraries.
"""

import argparse
import asyncio
import sys
import time

from sidebyside import cells, page
from sidebyside.environments import ROOT, WHERE
from sidebyside.harness import Bench


def step(name):
    """Print the current step."""
    print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr)


async def everything(effort):
    """Measure all cells of all variants."""
    async with Bench() as bench:
        step("blocks")
        await cells.blocks(bench, effort, [*cells.FLOORS, *cells.LIBRARIES, *cells.OURS])
        step("starts and stops")
        await cells.starts_and_stops(bench, effort, [*cells.SLOW, *cells.OURS, *cells.POOLED])
        step("many at once")
        await cells.together(bench, effort)
        step("agent turns")
        await cells.turns(bench, effort)
        step("memory, tools, recovery")
        await cells.singles(bench, effort)
        missing = dict(bench.absent)
        missing |= {name: f"{count} starts failed" for name, count in bench.failed_starts.items()}
        missing |= {name: f"{count} rounds with many blocks broke" for name, count in bench.failed_rounds.items()}
        return {
            "seconds": bench.seconds,
            "facts": bench.facts,
            "absent": missing,
            "versions": bench.versions,
            "machine": page.machine(),
            "day": page.today(),
        }


def main():
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a few of everything; writes no page")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    WHERE.mkdir(exist_ok=True)
    figures = asyncio.run(everything(cells.TINY if options.tiny else cells.Effort()))
    figures["note"] = options.note
    print(page.gains(figures))
    if not options.tiny:
        page.write_part(ROOT / "docs/benchmarks.md", "gains", page.gains(figures))
        page.write_part(ROOT / "README.md", "speed", page.readme_sentence(figures))
    sys.exit(any(name in figures["absent"] for name in (*cells.OURS, *cells.POOLED)))


if __name__ == "__main__":
    main()
