"""The text of docs/benchmarks.md."""

import os
import platform
import statistics

from . import cells as c
from .growth import CURVES
from .targets import TARGETS, interval, judge

CELLS = [c.PYTHON, c.SHELL, c.START, c.STOP]
MORE = [c.PRELOADED, c.AT_ONCE, c.MANY, c.GOLDEN, c.TURN]


def duration(seconds):
    """As people write it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def number(value):
    """Three digits, never with an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def targets_table(seconds, facts):
    """Each target, the figure, and whether it is reached."""
    lines = ["| cell | ours | against | target | measured (95 %) | medians | |", "|---" * 7 + "|"]
    for target in TARGETS:
        found = judge(target, seconds, facts)
        if found is None:
            lines.append(
                f"| {target.cell} | {target.ours} | {target.base or '-'} | {target.wanted} | not measured | | - |"
            )
            continue
        figure = "{} ({} to {})".format(*map(number, found["figure"]))
        if target.base is not None:
            figure = f"**{figure.split()[0]}×** {figure.partition(' ')[2]}"
            medians = f"{duration(found['ours'])}, {duration(found['base'])}"
        else:
            figure, medians = f"**{figure.split()[0]} {target.unit}** {figure.partition(' ')[2]}", ""
        met = "reached" if found["met"] else "**missed**"
        lines.append(
            f"| {target.cell} | {target.ours} | {target.base or '-'} | {target.wanted} | {figure} | {medians} | {met} |"
        )
    return "\n".join(lines)


def arms_table(seconds, names, cells):
    """Rows of arms, columns of cells: the median, and how many times as fast as AutoGen's executor."""
    lines = ["| p50 | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
    for name in names:
        shown = []
        for cell in cells:
            values = seconds.get(cell, {}).get(name)
            base = seconds.get(cell, {}).get(c.LOCAL if cell == c.TURN else c.COMMAND_LINE)
            if not values:
                shown.append("-")
                continue
            text = duration(statistics.median(values))
            if base and base is not values:
                text += " ({}×, {} to {})".format(*map(number, interval(values, base)))
            shown.append(text)
        if set(shown) != {"-"}:
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def sentence(lines):
    """From where to where each line goes."""
    parts = []
    for name, points in lines.items():
        if points:
            (x0, first), (x1, last) = points[0], points[-1]
            a, b = statistics.median(first), statistics.median(last)
            parts.append(f"{name} goes from {duration(a)} at {x0:,} to {duration(b)} at {x1:,}")
    return "; ".join(parts) + "."


def plots(curves):
    """The plots with a sentence each."""
    return "\n\n".join(
        f"### {CURVES[name][0][0].upper()}{CURVES[name][0][1:]}\n\n![{CURVES[name][1]}](benchmarks/{name}.svg)\n\n"
        f"{CURVES[name][1][0].upper()}{CURVES[name][1][1:]}: {sentence(lines)}"
        for name, lines in curves.items()
        if any(lines.values())
    )


def more_facts(facts):
    """What has no ratio."""
    lines = []
    if idle := facts.get(c.PRELOADED_MEMORY):
        lines.append(f"- Idle in Docker with numpy and pandas preloaded: {idle['sandbox'] / 1e6:.1f} MB.")
    sessions = {kind: facts.get(f"{kind}, idle memory of a session") for kind in c.KINDS}
    lines += [
        f"- Idle in session mode, {kind}: {idle['sandbox'] / 1e6:.1f} MB." for kind, idle in sessions.items() if idle
    ]
    if idle := facts.get("docker, idle memory"):
        lines.append(
            f"- The engine's shim beside each idle container, which no executor can do without: {idle['shim'] / 1e6:.1f} MB."
        )
    if found := facts.get("extraction"):
        lines.append(
            f"- Extraction: {found['bytes'] / 1e6:.1f} MB of recorded answers; of {found['of']} with one known block, just that "
            f"block was found in {found['right']}."
        )
    return "\n".join(lines)


def page(figures, profile):
    """The whole page.

    Args:
        figures: What `compare.py` has measured.
        profile: Text about the targets that are missed, by hand.
    """
    seconds, facts = figures["seconds"], figures["facts"]
    names = [*c.FLOORS, *c.PEERS, *c.OURS, "docker, process, preloaded", *c.POOLED]
    absent = "\n".join(f"- {name}: {reason}" for name, reason in figures["absent"].items()) or "Nothing: every arm ran."
    failed = "".join(
        f"\n{name} failed to start {count} times; these starts are not in its figures.\n"
        for name, count in figures.get("failed_starts", {}).items()
    ) + "".join(
        f"\n{name} broke {count} times with many blocks at once; these rounds are not in its figures.\n"
        for name, count in figures.get("failed_rounds", {}).items()
    )
    note = f"\n**{figures['note']}**\n" if figures["note"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    return f"""# Benchmarks

Written by `make bench`: everything side by side in one run, on one machine ({figures["machine"]}; {versions}).
Each peer runs in an environment of its own in its newest release, all with our image, to which a Jupyter gateway is added.
They run with the limits that their users get, which are none; ours with ours, but for the processors: all may use all of them.
Arms take turns in an order that is new in each round, after a round that does not count. An arm that gives a wrong answer has no
time.
Ratios are of medians, with the 95 % interval of a bootstrap. `make bench-quick` takes less than a minute and says what got slower
than in `benchmarks/last.json`.
{note}
## Targets

{targets_table(seconds, facts)}

{profile}

## All arms

{arms_table(seconds, names, CELLS)}

In brackets: how many times as fast as autogen-ext's Docker command line. The echo's "block" is the answer itself, sent through
`cat` and back. "From the pool" takes a sandbox that a `SandboxPool` has started before; filling the pool is not in the time.

{arms_table(seconds, names, MORE)}

Blocks and sessions at once: wall time by block. A recorded session: all its blocks; AutoGen's executor has no state, so each
block is run after all those before it. Agent turn: a scripted model writes a block, it runs, the model reflects; in brackets
beside AutoGen's agent with its local executor, which has no sandbox.

{more_facts(facts)}

## How cost grows

{plots(figures["curves"])}

## Not measured

{absent}
{failed}"""


def readme_table(figures):
    """The short table of the README: medians of ours and of the peers."""
    seconds = figures["seconds"]

    def row(name, cell, ours):
        shown = [
            duration(statistics.median(values)) if (values := seconds.get(cell, {}).get(arm)) else "-"
            for arm in (ours, *c.SLOW)
        ]
        return f"| {name} | **{shown[0]}** | " + " | ".join(shown[1:]) + " |"

    rows = [
        row("a Python block in a new process", c.PYTHON, "docker, process"),
        row("a Python block in a session, checkpointed", c.PYTHON, "docker, session"),
        row("the same without a checkpoint", c.PYTHON, "docker, session, no checkpoint"),
        row("a shell block", c.SHELL, "docker, process"),
        row("create → first result", c.START, "docker, process"),
        row("the same from a `SandboxPool`", c.START, "docker, process, from the pool"),
        row("the same with bubblewrap", c.START, "bubblewrap, process"),
        row("stop", c.STOP, "docker, process"),
        row("50 blocks at once, each", c.AT_ONCE, "docker, process"),
    ]
    head = " | ".join(["p50", "**autogen-codeact**", *c.SLOW])
    return "\n".join(
        [
            f"| {head} |",
            "|---" * (2 + len(c.SLOW)) + "|",
            *rows,
            "",
            f"Measured in one run on one machine ({figures['machine']}) with `make bench`; your figures will differ, the ratios",
            "less so. All arms, targets, intervals and how cost grows: [benchmarks](docs/benchmarks.md).",
            *(["", f"**{figures['note']}**"] if figures["note"] else []),
        ]
    )


def machine():
    """What it ran on."""
    return f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
