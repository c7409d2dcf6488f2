"""Run the same three programs, and the same 30 escapes and leaks, in each sandbox that is installed here; write docs/board.md.

    python benchmarks/board.py                  # everything, half an hour on a quiet machine
    python benchmarks/board.py --only Monty     # some variants; writes no page

Needs a Docker engine with the sandbox image (`make image`), bubblewrap, and a package registry for the other libraries. What
can't run here is named on the page with its error. Runtimes of the engine (`crun`, `runsc`) are measured where it has them.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys

from sidebyside import cells, page
from sidebyside.containment import Host, contain, names
from sidebyside.environments import ENVIRONMENTS, ON_BOARD, ROOT, WHERE
from sidebyside.harness import Bench

from codeact_sandbox.types.options import DEFAULT_IMAGE

BOARD = ROOT / "docs/board.md"
FIGURES = WHERE / "board.json"
OURS = ["docker, session", "bubblewrap, session", "docker with crun, session", "docker with runsc, session"]
NO_SANDBOX = cells.LOCAL
"""Has no sandbox, so that the page shows that the escapes work."""
VARIANTS = [*OURS, cells.COMMAND_LINE, cells.JUPYTER, cells.SMOLAGENTS, cells.LLM, "microsandbox", "Monty", NO_SANDBOX]
SHOWN = {variant: f"**ours**, {variant.removesuffix(', session')}" for variant in OURS}
START, PAUSED, TASK = "create → first result", "block after a pause", "task in a batch"
STARTS, BLOCKS, PAUSE_S, TASKS, AT_ONCE, BLOCKS_OF_A_TASK = 5, 10, 1, 8, 4, 3


async def measure(only, number):
    """Return what was measured of some variants, with that many escapes."""
    with Host() as host:
        # Read by the programs that use the sandboxes, whose environment code must not see.
        os.environ["BOARD_SECRET"] = host.secret
        if os.access("/dev/kvm", os.R_OK | os.W_OK) and "microsandbox" in only:
            os.environ["BENCH_ROOT"] = str(_exported())
        async with Bench(names=(*ENVIRONMENTS, *ON_BOARD)) as bench:
            variants = [variant for variant in only if variant in bench.where]
            await _programs(bench, variants)
            running = [variant for variant in variants if variant not in bench.absent]
            held = await contain(bench, running, host, list(names())[:number])
            return {
                "seconds": bench.seconds,
                "held": held,
                "absent": {
                    variant: reason for variant, reason in bench.absent.items() if variant in (*only, *bench.names)
                },
                "versions": bench.versions,
                "machine": page.machine(),
                "day": page.today(),
            }


async def _programs(bench, variants):
    """Time the three programs."""
    for _ in range(STARTS):
        for variant in bench.shuffled(variants):
            await bench.close(variant, await bench.open(variant, cell=START))
    keys = {variant: await bench.open(variant) for variant in bench.shuffled(variants)}
    for _ in range(BLOCKS):
        for variant in bench.shuffled(variants):
            await asyncio.sleep(PAUSE_S / len(variants))
            block = {
                "key": keys[variant][0],
                "language": "python",
                "code": cells.CODE[cells.PYTHON]["python"],
                "times": 1,
            }
            await bench.run(PAUSED, variant, **block)
    for variant in variants:
        await bench.close(variant, keys.get(variant))
    for variant in bench.shuffled(variants):
        request = {"variant": variant, "count": TASKS, "at_once": AT_ONCE, "blocks": BLOCKS_OF_A_TASK}
        if (seconds := await bench.persist(TASK, variant, "tasks", **request)) is not None:
            bench.seconds[TASK][variant].append(seconds / TASKS)


def _exported():
    """Return a folder with the files of the sandbox image, for machines that boot from a folder."""
    folder = WHERE / "root"
    if not folder.exists():
        folder.mkdir(parents=True)
        made = subprocess.run(["docker", "create", DEFAULT_IMAGE, "true"], capture_output=True, text=True, check=True)
        try:
            with subprocess.Popen(["docker", "export", made.stdout.strip()], stdout=subprocess.PIPE) as files:
                subprocess.run(["tar", "-x", "-C", str(folder)], stdin=files.stdout, check=True)
        finally:
            subprocess.run(["docker", "rm", made.stdout.strip()], capture_output=True, check=True)
    return folder


def text(figures):
    """Return the part of the page that this program writes."""
    held, seconds = figures["held"], figures["seconds"]
    rows = [
        [
            _shown(variant, figures["versions"]),
            f"{sum(held[variant].values())} of {len(held[variant])}",
            *(_median(seconds.get(cell, {}).get(variant)) for cell in (START, PAUSED, TASK)),
        ]
        for variant in VARIANTS
        if variant in held
    ]
    head = ["sandbox", "held", START, f"{PAUSED} of {PAUSE_S} s", TASK]
    absent = [f"- {name}: {reason}" for name, reason in figures["absent"].items()]
    titles = names()
    numbers = dict(zip(titles, range(1, len(titles) + 1), strict=True))
    missed = [
        f"- {_shown(variant, figures['versions'])}: "
        + ", ".join(str(numbers[name]) for name, good in found.items() if not good)
        for variant, found in held.items()
        if not all(found.values())
    ]
    listed = [f"{number}. {title}" for number, title in enumerate(titles.values(), 1)]
    parts = [
        f"{figures['day']}, {figures['machine']}; `python benchmarks/board.py`.",
        page.table(head, rows),
        "What got through, by its number [below](#the-escapes-and-leaks):",
        "\n".join(map(page.wrapped, missed)),
        *(["Not run here:", "\n".join(map(page.wrapped, absent))] if absent else []),
        "### The escapes and leaks",
        "\n".join(listed),
    ]
    return "\n\n".join(parts)


def _shown(variant, versions):
    name = SHOWN.get(variant, variant)
    first = name.split()[0].lower()
    return next((f"{name} ({version})" for package, version in versions.items() if package.endswith(first)), name)


def _median(seconds):
    return page.duration(statistics.median(seconds)) if seconds else "-"


def main():
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=VARIANTS, help="some variants; writes no page")
    parser.add_argument(
        "--escapes", type=int, default=len(names()), help="how many; writes no page if some are left out"
    )
    parser.add_argument("--page", action="store_true", help="write the page from the figures of the last run")
    options = parser.parse_args()
    if not options.page:
        figures = asyncio.run(measure(options.only, options.escapes))
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(figures))
    figures = json.loads(FIGURES.read_text())
    print(text(figures))
    if options.only == VARIANTS and options.escapes == len(names()):
        page.write_part(BOARD, "board", text(figures))
    return 0 if figures["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
