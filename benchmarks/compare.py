"""Compare our executors with lower bounds and other libraries, in one run on one machine: ratios of medians with intervals.

    python benchmarks/compare.py              # writes docs/benchmarks.md, README's sentence and last.json   (make bench)
    python benchmarks/compare.py --quick      # under a minute; reports what got slower than last.json     (make bench-quick)
    python benchmarks/compare.py --tiny       # a few of everything, to check that it works; writes a page only with --note
    python benchmarks/compare.py --page       # writes the page and the plots from the figures of the last run

Needs a Docker engine with the sandbox image (`make image`), bubblewrap, and a package registry for the other libraries.
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

README = ROOT / "README.md"
FIGURES = WHERE / "figures.json"
PAGE, PLOT_FOLDER = ROOT / "docs/benchmarks.md", ROOT / "docs/benchmarks"
LAST = ROOT / "benchmarks/last.json"
# The measurements of --quick, with their references.
GUARDS = {
    cells.PYTHON: (cells.SUBPROCESS, cells.PYTHON),
    cells.SHELL: (cells.SUBPROCESS, cells.SHELL),
    cells.START: (cells.DOCKER_RUN, cells.PYTHON),
    cells.STOP: (cells.DOCKER_RUN, cells.PYTHON),
}
# A variant is slower if the upper end of its ratio's interval is below this share of the last ratio.
SLOWER = 0.7


def step(name):
    """Print the current step."""
    print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr)


async def everything(effort, *, small):
    """Measure all cells of all variants."""
    async with Bench() as bench:
        step("blocks")
        await cells.blocks(bench, effort, [*cells.FLOORS, *cells.LIBRARIES, *cells.OURS])
        step("starts and stops")
        await cells.starts_and_stops(bench, effort, [*cells.SLOW, *cells.OURS, *cells.POOLED])
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
            "day": page.today(),
        }


async def guard(effort):
    """Measure what --quick compares."""
    async with Bench(quick=True) as bench:
        await cells.blocks(bench, effort, [cells.SUBPROCESS, cells.DOCKER_RUN, *cells.OURS])
        await cells.starts_and_stops(bench, effort, [*cells.OURS, *cells.POOLED])
        return {"seconds": bench.seconds, "absent": bench.absent}


def ratios(seconds):
    """Return how many times as fast as its reference each variant is: {cell: {variant: (ratio, low, high)}}."""
    found = {}
    for cell, (base_variant, base_cell) in GUARDS.items():
        base = seconds.get(base_cell, {}).get(base_variant)
        variants = {
            variant: values
            for variant, values in seconds.get(cell, {}).items()
            if variant in (*cells.OURS, *cells.POOLED)
        }
        found[cell] = {variant: interval(values, base) for variant, values in variants.items() if base}
    return found


def slower(found, last):
    """Return a line for each variant that is slower than in the last full run."""
    return [
        f"{variant}, {cell}: {middle:.2f}× as fast as {GUARDS[cell][0]} ({low:.2f} to {high:.2f}), was {last[cell][variant]:.2f}×"
        for cell, variants in found.items()
        for variant, (middle, low, high) in variants.items()
        if last.get(cell, {}).get(variant) and high < SLOWER * last[cell][variant]
    ]


def compare_with_last(figures):
    """Print what got slower and return the exit code."""
    found = ratios(figures["seconds"])
    names = [*cells.OURS, *cells.POOLED]
    print(page.variants_table(figures["seconds"], [cells.SUBPROCESS, cells.DOCKER_RUN, *names], page.CELLS))
    if not LAST.exists():
        print(f"{LAST.relative_to(ROOT)} is missing: `make bench` on a quiet machine writes it")
        return 0
    lines = slower(found, json.loads(LAST.read_text())["ratios"])
    print(
        "\n".join(["slower than in the last full run:", *lines])
        if lines
        else "nothing is slower than in the last full run"
    )
    return 1 if lines else 0


def write_page(figures):
    """Write the parts of the page and of README, the plots and the ratios that --quick compares with."""
    page.write_part(PAGE, "gains", page.gains(figures))
    page.write_part(PAGE, "all", page.everything(figures))
    page.write_part(README, "speed", page.readme_sentence(figures))
    stored = {
        cell: {variant: round(found[0], 3) for variant, found in variants.items()}
        for cell, variants in ratios(figures["seconds"]).items()
    }
    LAST.write_text(
        json.dumps({"machine": figures["machine"], "note": figures["note"], "ratios": stored}, indent=1) + "\n"
    )
    draw(figures, PLOT_FOLDER)


def draw(figures, folder):
    """Draw the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    FIGURES.with_name("curves.json").write_text(json.dumps({"about": growth.CURVES, "curves": figures["curves"]}))
    plotter = [python_of("plots", PLOTS), ROOT / "benchmarks/sidebyside/plots.py"]
    subprocess.run([*plotter, FIGURES.with_name("curves.json"), folder], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--quick", action="store_true", help="a short run of our executors, compared with the last full run"
    )
    group.add_argument(
        "--tiny",
        action="store_true",
        help="a few of everything, to check that it works; with --note, it writes the page",
    )
    group.add_argument("--page", action="store_true", help="write the page from the figures of the last run")
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
    print(page.targets_list(figures["seconds"], figures["facts"]))
    for name, reason in figures["absent"].items():
        print(f"not measured: {name}: {reason}")
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
