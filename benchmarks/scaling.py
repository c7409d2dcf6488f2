"""Measure tasks a minute and memory against concurrency and the number of engines, and what a sandbox costs.

python benchmarks/scaling.py               # 3 minutes on a quiet machine; writes the figures into docs/scaling.md
python benchmarks/scaling.py --engines 3   # 4 minutes: also two and three engines on this machine; needs root and dockerd
python benchmarks/scaling.py --tiny        # a few of everything, to check that it works; writes no page
python benchmarks/scaling.py --page        # writes the page from the figures of the last run
"""

import argparse
import asyncio
import json
import sys
import time
from contextlib import ExitStack

from sidebyside import page, recorded, scaling_page
from sidebyside.environments import ROOT, WHERE
from sidebyside.harness import Failed, Remote, without_local_paths

FIGURES, PAGE = WHERE / "scaling.json", ROOT / "docs/scaling.md"
OWN_ENGINE = "unix:///var/run/docker.sock"
TIMEOUT_S = 600
# Concurrency and number of tasks; sandboxes alive.
FULL = {
    "batches": {1: 15, 2: 20, 4: 32, 8: 64, 16: 64, 32: 96, 64: 128},
    "engines": (8, 32),
    "tasks": 56,
    "alive": {"docker": (8, 32, 64), "bubblewrap": (32,)},
}
TINY = {"batches": {1: 2, 4: 4}, "engines": (2,), "tasks": 4, "alive": {"docker": (2,), "bubblewrap": (2,)}}


def more_engines(count, stack):
    """Start that many engines on this machine, which end with the stack, and return their addresses."""
    sys.path.insert(0, str(ROOT))
    from tests.abuse.second_engine import make_second_engine  # noqa: PLC0415 - of the tests, and only needed for this

    addresses = []
    for _ in range(count):
        engine = make_second_engine()
        stack.callback(engine.clear)
        engine.start()
        addresses.append(engine.address)
    return addresses


async def measure(plan, addresses):
    """Measure everything and return the figures."""
    found = {"batches": [], "engines": [], "alive": [], "absent": {}, "machine": page.machine()}
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
        found[kind].append(
            {**figures, "concurrency": arguments.get("concurrency"), "hosts": len(arguments.get("hosts", [1]))}
        )
        print(
            f"{time.strftime('%H:%M:%S')} {kind}: {arguments.get('concurrency', arguments.get('count'))}",
            file=sys.stderr,
        )

    for concurrency, count in plan["batches"].items():
        await part("batches", "batch", tasks=sessions[:count], concurrency=concurrency)
    for number in range(1, len(addresses) + 1 if len(addresses) > 1 else 1):
        for concurrency in plan["engines"]:
            await part(
                "engines", "batch", tasks=sessions[: plan["tasks"]], concurrency=concurrency, hosts=addresses[:number]
            )
    for sandbox, counts in plan["alive"].items():
        for count in counts:
            await part("alive", "alive", count=count, sandbox=sandbox)
    return found


def write_page(figures):
    """Write the figures into the page, between its marks."""
    head, _, rest = PAGE.read_text().partition(scaling_page.BEGIN)
    tail = rest.partition(scaling_page.END)[2]
    PAGE.write_text(f"{head}{scaling_page.BEGIN}\n\n{scaling_page.section(figures)}\n{scaling_page.END}{tail}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tiny", action="store_true", help="a few of everything; writes no page")
    group.add_argument("--page", action="store_true", help="write the page from the figures of the last run")
    parser.add_argument("--engines", type=int, default=1, help="also with up to this many engines on this machine")
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else the machine was doing")
    options = parser.parse_args()
    if options.page:
        figures = json.loads(FIGURES.read_text())
    else:
        with ExitStack() as stack:
            addresses = [OWN_ENGINE, *more_engines(options.engines - 1, stack)]
            figures = asyncio.run(measure(TINY if options.tiny else FULL, addresses))
        figures["note"] = options.note
        WHERE.mkdir(exist_ok=True)
        (FIGURES.with_name("scaling-tiny.json") if options.tiny else FIGURES).write_text(json.dumps(figures))
    print(scaling_page.section(figures))
    if not options.tiny:
        write_page(figures)


if __name__ == "__main__":
    main()
