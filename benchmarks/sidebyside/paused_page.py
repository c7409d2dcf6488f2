"""The part of the page about blocks after pauses."""

import statistics

from .page import judged, result, table, wrapped
from .targets import interval

AUTOGEN = "autogen-ext Docker command line"
PROCESS, SESSION, BARE = "docker, process", "docker, session", "docker, session, no checkpoint"
OURS = (PROCESS, SESSION, BARE)
SAME, AGENTS = "back to back, one sandbox", "agents with pauses"
IDLE = "after a pause of the whole machine"
WANTED = 25
# For each case the probe and its arguments; blocks back to back take no time, so there are more of them.
CASES = {
    SAME: lambda options: {"name": "back to back", "count": 4 * options.blocks},
    AGENTS: lambda options: {"name": "agents", "seconds": options.seconds},
    IDLE: lambda options: {"name": "idle machine", "count": options.blocks},
}


def section(figures):
    """Return the targets and the table of times."""
    blocks, rows = figures["blocks"], []
    for case in CASES:
        base = blocks.get(case, {}).get(AUTOGEN)
        rows.append([case, _ms(base), *(_compared(blocks.get(case, {}).get(variant), base) for variant in OURS)])
    about = (
        f"{figures['sandboxes']} sandboxes of each variant are alive. Each has a block, then a pause of 0.2 to 2 s; or nothing "
        "runs on the machine for as long, then a block in a random sandbox."
    )
    lines = [f"- {target}: {result(met, figure)}" for target, figure, met in targets(figures)]
    return "\n\n".join([wrapped(about), table(["median", AUTOGEN, *OURS], rows), "\n".join(lines)])


def targets(figures):
    """Return what is wanted, what was measured, whether it is reached."""
    rows = []
    for variant in (PROCESS, SESSION):
        ours, base = (figures["blocks"].get(AGENTS, {}).get(name) for name in (variant, AUTOGEN))
        if ours and base:
            found = interval(ours, base)
            text = judged(found, WANTED)
            rows.append((f"block after a pause, {variant}: ≥ {WANTED}× {AUTOGEN}", text, found[0] >= WANTED))
    return rows


def _ms(seconds):
    return f"{1e3 * statistics.median(seconds):.2f} ms" if seconds else "-"


def _compared(seconds, base):
    if not seconds:
        return "-"
    return f"{_ms(seconds)} ({interval(seconds, base)[0]:.3g}×)" if base else _ms(seconds)
