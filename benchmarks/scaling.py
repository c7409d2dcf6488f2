"""Measure tasks a minute and memory against concurrency, and what a sandbox costs.

python benchmarks/scaling.py               # 3 minutes on a quiet machine; writes the figures into docs/scaling.md
python benchmarks/scaling.py --tiny        # a few of everything, to check that it works; writes no page
python benchmarks/scaling.py --page        # writes the page from the figures of the last run
"""

import argparse
import asyncio
import json
import sys
import time

from sidebyside import page, recorded, scaling_page
from sidebyside.environments import ROOT, WHERE
from sidebyside.harness import Failed, Remote, without_local_paths

FIGURES, PAGE = WHERE / "scaling.json", ROOT / "docs/scaling.md"
TIMEOUT_S = 600
# Concurrency and number of tasks; sandboxes alive.
FULL = {
    "batches": {1: 15, 8: 64, 32: 96, 64: 128},
    "alive": {"docker": (8, 32, 64), "bubblewrap": (32,)},
}
TINY = {"batches": {1: 2, 4: 4}, "alive": {"docker": (2,), "bubblewrap": (2,)}}


async def measure(plan):
    """Measure everything and return the figures."""
    found = {"batches": [], "alive": [], "absent": {}, "machine": page.machine(), "day": page.today()}
    sessions = recorded.tasks(300)

    async def part(kind, name, **arguments):
        # Each part has a process of its own, whose memory says something.
        remote = Remote("own", ("scaling_probes",))
        await remote.start("")
        try:
            figures = await remote.request("probe", timeout_s=TIMEOUT_S, name=f"scaling, {name}", **arguments)
        except Failed as error:
            found["absent"][f"{kind} {arguments.get('concurrency', arguments.get('count'))}"] = without_local_paths(
                str(error)
            )
            print(f"not measured: {kind}: {error}", file=sys.stderr)
            return
        finally:
            await remote.stop()
        if wrong := [task["wrong"] for task in figures.get("tasks", []) if task["wrong"]]:
            sys.exit(f"a wrong answer: {wrong[0]}")
        found[kind].append({**figures, "concurrency": arguments.get("concurrency")})
        print(
            f"{time.strftime('%H:%M:%S')} {kind}: {arguments.get('concurrency', arguments.get('count'))}",
            file=sys.stderr,
        )

    for concurrency, count in plan["batches"].items():
        await part("batches", "batch", tasks=sessions[:count], concurrency=concurrency)
    for sandbox, counts in plan["alive"].items():
        for count in counts:
            await part("alive", "alive", count=count, sandbox=sandbox)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tiny", action="store_true", help="a few of everything; writes no page")
    group.add_argument("--page", action="store_true", help="write the page from the figures of the last run")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    if options.page:
        figures = json.loads(FIGURES.read_text())
    else:
        figures = asyncio.run(measure(TINY if options.tiny else FULL))
        figures["note"] = options.note
        WHERE.mkdir(exist_ok=True)
        (FIGURES.with_name("scaling-tiny.json") if options.tiny else FIGURES).write_text(json.dumps(figures))
    print(scaling_page.section(figures))
    if not options.tiny:
        page.write_part(PAGE, "measured", scaling_page.section(figures))


if __name__ == "__main__":
    main()
