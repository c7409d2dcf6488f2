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
    return "\n\n".join([wrapped(about), table(["median", "AutoGen", *OURS], rows), targets(figures)])


def targets(figures):
    """Return which of our variants reach the target."""
    shown = []
    for variant in (PROCESS, SESSION):
        ours, base = (figures["blocks"].get(AGENTS, {}).get(name) for name in (variant, AUTOGEN))
        if ours and base:
            found = interval(ours, base)
            shown.append(f"{variant} {result(found[0] >= WANTED, judged(found, WANTED))}")
    return f"Target of {AGENTS}, ≥ {WANTED}× as fast as AutoGen: {'; '.join(shown) or 'not measured'}."


def _ms(seconds):
    return f"{1e3 * statistics.median(seconds):.2f} ms" if seconds else "-"


def _compared(seconds, base):
    if not seconds:
        return "-"
    return f"{_ms(seconds)} ({interval(seconds, base)[0]:.3g}×)" if base else _ms(seconds)
