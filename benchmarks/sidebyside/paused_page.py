"""The part of the page about blocks after pauses."""

import statistics

from .page import wrapped
from .targets import interval

AUTOGEN = "autogen-ext Docker command line"
PROCESS, SESSION, BARE = "docker, process", "docker, session", "docker, session, no checkpoint"
OURS = (PROCESS, SESSION, BARE)
SAME, RANDOM = "back to back, one sandbox", "back to back, a random sandbox each time"
AGENTS, AWAKE = "agents with pauses", "agents with pauses, processors kept awake"
IDLE = "after a pause of the whole machine"
WANTED = 25
# For each case the probe and its arguments; blocks back to back take no time, so there are more of them.
CASES = {
    SAME: lambda options: {"name": "back to back", "count": 4 * options.blocks, "same": True},
    RANDOM: lambda options: {"name": "back to back", "count": 4 * options.blocks, "same": False},
    AGENTS: lambda options: {"name": "agents", "seconds": options.seconds},
    AWAKE: lambda options: {"name": "agents", "seconds": options.seconds, "awake": True},
    IDLE: lambda options: {"name": "idle machine", "count": options.blocks},
}


def section(figures):
    """Return the tables: the times of each case, and what the machine counts for a block."""
    blocks = figures["blocks"]
    return "\n".join([_times(blocks, figures["sandboxes"]), *_why(blocks), "", _counts(blocks)]) + "\n"


def _times(blocks, sandboxes):
    lines = [
        f"{sandboxes} sandboxes of each variant are alive.\n",
        "- *Agents with pauses*: in each sandbox a block, then a pause of 0.2 to 2 s; never two blocks at a time.",
        "- *Processors kept awake*: the same, while processes that yield to every other one keep the processors from sleeping.",
        "- *After a pause of the whole machine*: nothing runs for 0.2 to 2 s, then a block in a random sandbox.\n",
        "| median, and how many times as fast as AutoGen's Docker executor (95 %) | "
        + " | ".join((AUTOGEN, *OURS))
        + " |",
        "|---" * (2 + len(OURS)) + "|",
    ]
    for case in CASES:
        base = _seconds(blocks, case, AUTOGEN) or _seconds(blocks, AGENTS if case == AWAKE else case, AUTOGEN)
        cells = [_ms(_seconds(blocks, case, AUTOGEN))]
        cells += [_compared(_seconds(blocks, case, variant), base) for variant in OURS]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def targets(figures):
    """Return rows for the table of targets: what is wanted, what was measured, whether it is reached."""
    rows = []
    for variant in (PROCESS, SESSION):
        ours, base = (_seconds(figures["blocks"], AGENTS, name) for name in (variant, AUTOGEN))
        if ours and base:
            found = interval(ours, base)
            text = f"**{found[0]:.3g}×** ({found[1]:.3g} to {found[2]:.3g})"
            rows.append((f"block after a pause, {variant}: ≥ {WANTED}× {AUTOGEN}", text, found[0] >= WANTED))
    return rows


def _why(blocks):
    """Return a line for each of our variants: which part of the difference is whose."""
    lines = []
    for variant in OURS:
        times = [_seconds(blocks, case, variant) for case in (SAME, RANDOM, AWAKE, AGENTS)]
        if all(times):
            same, other, awake, paused = (1e3 * statistics.median(seconds) for seconds in times)
            text = (
                f"- {variant}: {same:.2f} ms back to back; {other - same:+.2f} ms with another sandbox each time (caches); "
                f"{awake - other:+.2f} ms after pauses, with processors that stay awake (caches, and work done in advance); "
                f"{paused - awake:+.2f} ms with processors that sleep (wake-ups)."
            )
            lines.append(wrapped(text))
    if lines:
        lines.insert(0, "Where the difference comes from (medians; each part adds a condition to the one before it):\n")
    return lines


def _counts(blocks):
    lines = [
        "What the machine counts from the request for a block to its result, median:\n",
        "| | context switches | page faults | times that a processor went to sleep |",
        "|---|---|---|---|",
    ]
    for case in CASES:
        for variant in (AUTOGEN, *OURS):
            if found := blocks.get(case, {}).get(variant):
                middle = [statistics.median(block[name] for block in found) for name in ("switches", "faults", "idles")]
                lines.append(f"| {variant}, {case} | " + " | ".join(f"{count:,.0f}" for count in middle) + " |")
    return "\n".join(lines)


def _seconds(blocks, case, variant):
    return [block["seconds"] for block in blocks.get(case, {}).get(variant, [])]


def _ms(seconds):
    return f"{1e3 * statistics.median(seconds):.2f} ms ({len(seconds)} blocks)" if seconds else "-"


def _compared(seconds, base):
    if not seconds:
        return "-"
    if not base:
        return _ms(seconds)
    found = interval(seconds, base)
    return f"{1e3 * statistics.median(seconds):.2f} ms ({found[0]:.3g}×, {found[1]:.3g} to {found[2]:.3g})"
