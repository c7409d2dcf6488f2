"""Measure blocks after a pause, as agents run them, and back to back, with many sandboxes alive.

    python benchmarks/paused.py              # about 3 minutes on a quiet machine
    python benchmarks/paused.py --quick      # about a minute
    python benchmarks/paused.py --sandboxes 2 --seconds 1 --blocks 3     # to check that it works

16 sandboxes of each variant are alive. The figures are part of docs/benchmarks.md, which
`python benchmarks/batch.py --page` writes.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import defaultdict

from sidebyside import paused_page
from sidebyside.environments import WHERE, Missing, libraries_image
from sidebyside.harness import Failed, Remote, without_local_paths
from sidebyside.paused_page import AUTOGEN, CASES, OURS

MODULES = {"own": ("ours", "paused_blocks"), "autogen": ("library_autogen", "paused_blocks")}
TIMEOUT_S = 600


async def measure(options):
    """Measure all cases of all variants, in rounds, in each of which the order is random."""
    remotes, keys, absent = {}, {}, {}
    found = defaultdict(lambda: defaultdict(list))
    chance = random.Random(options.seed)
    try:
        image = await asyncio.to_thread(libraries_image)
        for name, modules in MODULES.items():
            remote = Remote(name, modules)
            await remote.start(image)
            remotes |= dict.fromkeys([AUTOGEN] if name == "autogen" else OURS, remote)
    except (Missing, Failed) as error:
        absent[AUTOGEN] = without_local_paths(str(error))
    try:
        for variant, remote in remotes.items():
            keys[variant] = [f"{variant} {number}" for number in range(options.sandboxes)]
            await remote.request("open", variant=variant, keys=keys[variant], timeout_s=TIMEOUT_S)
        for number in range(options.rounds):
            order = [(case, variant) for case in CASES for variant in remotes]
            chance.shuffle(order)
            for case, variant in order:
                made = CASES[case](options)
                blocks = await remotes[variant].request(
                    "probe", timeout_s=TIMEOUT_S, keys=keys[variant], seed=number, **made
                )
                found[case][variant] += blocks
                print(f"{time.strftime('%H:%M:%S')} {case}, {variant}: {len(blocks)} blocks", file=sys.stderr)
    finally:
        for variant, remote in remotes.items():
            await remote.request("close", keys=keys.get(variant, []), timeout_s=TIMEOUT_S)
        await asyncio.gather(*(remote.stop() for remote in set(remotes.values())))
    return {"blocks": found, "absent": absent, "sandboxes": options.sandboxes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a minute")
    parser.add_argument("--sandboxes", type=int, default=16, help="alive, of each variant")
    parser.add_argument("--seconds", type=float, help="of each variant in each round, with pauses")
    parser.add_argument("--blocks", type=int, help="of each variant in each round, where blocks are counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    options.seconds = options.seconds or 5
    options.blocks = options.blocks or 5
    figures = asyncio.run(measure(options))
    WHERE.mkdir(exist_ok=True)
    (WHERE / "paused.json").write_text(json.dumps(figures))
    print(paused_page.section(figures))
    sys.exit(1 if set(OURS) - figures["blocks"].get(paused_page.AGENTS, {}).keys() else 0)


if __name__ == "__main__":
    main()
