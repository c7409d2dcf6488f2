"""Our executors beside floors and peers, in one run on one machine: ratios of medians with confidence intervals.

    python benchmarks/compare.py              # writes docs/benchmarks.md, README's table and last.json          (make bench)
    python benchmarks/compare.py --quick      # under a minute; says what got slower than last.json        (make bench-quick)
    python benchmarks/compare.py --tiny       # a few of everything, to see that it works; writes a page only with --note
    python benchmarks/compare.py --page       # writes the page and the plots anew from the figures of the last run

Needs a Docker engine with the sandbox image (`make image`), bubblewrap, and a package registry for the peers.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time

from sidebyside import cells, growth, page
from sidebyside.environments import PLOTS, ROOT, WHERE, Missing, python_of
from sidebyside.harness import Bench
from sidebyside.targets import interval

README, BEGIN, END = ROOT / "README.md", "<!-- speed: written by make bench -->", "<!-- /speed -->"
FIGURES = WHERE / "figures.json"
PAGE, PLOT_FOLDER = ROOT / "docs/benchmarks.md", ROOT / "docs/benchmarks"
LAST, PROFILE = ROOT / "benchmarks/last.json", ROOT / "benchmarks/profile.md"
# What can be measured in a minute, by what it is compared with.
GUARDS = {
    cells.PYTHON: (cells.SUBPROCESS, cells.PYTHON),
    cells.SHELL: (cells.SUBPROCESS, cells.SHELL),
    cells.START: (cells.DOCKER_RUN, cells.PYTHON),
    cells.STOP: (cells.DOCKER_RUN, cells.PYTHON),
}
# A ratio that falls below this share of the last one counts as slower, where the whole interval says so.
SLOWER = 0.7


def step(name):
    """Say what is being done."""
    print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr)


async def everything(effort, *, small):
    """All cells of all arms."""
    async with Bench() as bench:
        step("blocks")
        await cells.blocks(bench, effort, [*cells.FLOORS, *cells.PEERS, *cells.OURS])
        step("starts and stops")
        await cells.lives(bench, effort, [*cells.SLOW, *cells.OURS, *cells.POOLED])
        step("large imports")
        await cells.preload(bench, effort)
        step("many at once")
        await cells.together(bench, effort)
        step("recorded sessions")
        await cells.golden(bench, effort)
        step("agent turns")
        await cells.turns(bench, effort)
        step("memory, tools, recovery, output, extraction")
        await cells.singles(bench, effort)
        cells.imports(bench, effort)
        step("growth")
        curves = await growth.measure(bench, effort.few, small=small)
        return {
            "seconds": bench.seconds,
            "facts": bench.facts,
            "absent": bench.absent,
            "failed_starts": bench.failed_starts,
            "failed_rounds": bench.failed_rounds,
            "versions": bench.versions,
            "curves": curves,
            "machine": page.machine(),
        }


async def guard(effort):
    """What the guard needs."""
    async with Bench(quick=True) as bench:
        await cells.blocks(bench, effort, [cells.SUBPROCESS, cells.DOCKER_RUN, *cells.OURS])
        await cells.lives(bench, effort, [*cells.OURS, *cells.POOLED])
        return {"seconds": bench.seconds, "absent": bench.absent}


def ratios(seconds):
    """How many times as fast as the guard's base: {cell: {arm: (ratio, low, high)}}."""
    found = {}
    for cell, (base_arm, base_cell) in GUARDS.items():
        base = seconds.get(base_cell, {}).get(base_arm)
        arms = {arm: values for arm, values in seconds.get(cell, {}).items() if arm in (*cells.OURS, *cells.POOLED)}
        found[cell] = {arm: interval(values, base) for arm, values in arms.items() if base}
    return found


def slower(found, last):
    """What got slower than in the last full run."""
    return [
        f"{arm}, {cell}: {middle:.2f}× as fast as {GUARDS[cell][0]} ({low:.2f} to {high:.2f}), was {last[cell][arm]:.2f}×"
        for cell, arms in found.items()
        for arm, (middle, low, high) in arms.items()
        if last.get(cell, {}).get(arm) and high < SLOWER * last[cell][arm]
    ]


def compare_with_last(figures):
    """Print what got slower; the exit code."""
    found = ratios(figures["seconds"])
    names = [*cells.OURS, *cells.POOLED]
    print(page.arms_table(figures["seconds"], [cells.SUBPROCESS, cells.DOCKER_RUN, *names], page.CELLS))
    if not LAST.exists():
        print(f"there is no {LAST.relative_to(ROOT)} to compare with: `make bench` on a quiet machine writes it")
        return 0
    lines = slower(found, json.loads(LAST.read_text())["ratios"])
    print("\n".join(["slower than last time:", *lines]) if lines else "nothing is slower than last time")
    return 1 if lines else 0


def write_page(figures):
    """The page, its plots and the ratios that the guard compares with."""
    profile = PROFILE.read_text().strip() if PROFILE.exists() else ""
    PAGE.write_text(page.page(figures, profile))
    head, _, rest = README.read_text().partition(BEGIN)
    README.write_text(f"{head}{BEGIN}\n\n{page.readme_table(figures)}\n\n{END}{rest.partition(END)[2]}")
    kept = {
        cell: {arm: round(found[0], 3) for arm, found in arms.items()}
        for cell, arms in ratios(figures["seconds"]).items()
    }
    LAST.write_text(
        json.dumps({"machine": figures["machine"], "note": figures["note"], "ratios": kept}, indent=1) + "\n"
    )
    draw(figures, PLOT_FOLDER)


def draw(figures, folder):
    """The plots."""
    folder.mkdir(parents=True, exist_ok=True)
    FIGURES.with_name("curves.json").write_text(json.dumps({"about": growth.CURVES, "curves": figures["curves"]}))
    plotter = [python_of("plots", PLOTS), ROOT / "benchmarks/sidebyside/plots.py"]
    subprocess.run([*plotter, FIGURES.with_name("curves.json"), folder], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--quick", action="store_true", help="a short run of ours, compared with the last full one")
    way.add_argument(
        "--tiny", action="store_true", help="a few of everything, to see that it works; with --note, a page of it"
    )
    way.add_argument("--page", action="store_true", help="write the page from the figures of the last run")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    if options.quick:
        figures = asyncio.run(guard(cells.QUICK))
        broken = bool(figures["absent"])
        sys.exit(compare_with_last(figures) or broken)
    WHERE.mkdir(exist_ok=True)
    if options.page:
        figures = json.loads(FIGURES.read_text())
    else:
        began = time.monotonic()
        figures = asyncio.run(everything(cells.TINY if options.tiny else cells.Effort(), small=options.tiny))
        figures["note"] = options.note
        FIGURES.write_text(json.dumps(figures))
        step(f"measured in {time.monotonic() - began:.0f} s")
    print(page.targets_table(figures["seconds"], figures["facts"]))
    for name, reason in figures["absent"].items():
        print(f"no time for {name}: {reason}")
    try:
        if options.tiny and not options.note:
            draw(figures, WHERE / "drawn")
        else:
            write_page(figures)
    except Missing as error:
        sys.exit(f"the plots could not be drawn: {error}")
    ours = {name for name in figures["absent"] if name in (*cells.OURS, *cells.POOLED)}
    sys.exit(1 if ours else 0)


if __name__ == "__main__":
    main()
