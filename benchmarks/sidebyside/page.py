"""The text of docs/benchmarks.md."""

import os
import platform
import statistics
import textwrap

from . import cells as c
from .growth import CURVES
from .targets import TARGETS, interval, judge

CELLS = [c.PYTHON, c.SHELL, c.START, c.STOP]
MORE = [c.PRELOADED, c.AT_ONCE, c.MANY, c.GOLDEN, c.TURN]


def wrapped(text):
    """Break a paragraph, or an item of a list, into lines as long as those of the other pages."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 130, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def duration(seconds):
    """Format a duration."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def number(value):
    """Format a number with three digits, never with an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def targets_table(seconds, facts):
    """Return the table of targets, with figures and whether they are reached."""
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


def variants_table(seconds, names, cells):
    """Return a table of variants and cells: the median, and how many times as fast as AutoGen's executor."""
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
    """Describe the first and last point of each line."""
    parts = []
    for name, points in lines.items():
        if points:
            (x0, first), (x1, last) = points[0], points[-1]
            a, b = statistics.median(first), statistics.median(last)
            parts.append(f"{name} goes from {duration(a)} at {x0:,} to {duration(b)} at {x1:,}")
    return "; ".join(parts) + "."


def plots(curves):
    """Return the plots with a sentence each."""
    return "\n\n".join(
        f"### {CURVES[name][0][0].upper()}{CURVES[name][0][1:]}\n\n![{CURVES[name][1]}](benchmarks/{name}.svg)\n\n"
        + wrapped(f"{CURVES[name][1][0].upper()}{CURVES[name][1][1:]}: {sentence(lines)}")
        for name, lines in curves.items()
        if any(lines.values())
    )


def more_facts(facts):
    """Return the figures without a ratio."""
    lines = []
    if idle := facts.get(c.PRELOADED_MEMORY):
        lines.append(f"- Idle in Docker with numpy and pandas preloaded: {idle['sandbox'] / 1e6:.1f} MB.")
    sessions = {kind: facts.get(f"{kind}, idle memory of a session") for kind in c.KINDS}
    lines += [
        f"- Idle in session mode, {kind}: {idle['sandbox'] / 1e6:.1f} MB." for kind, idle in sessions.items() if idle
    ]
    if idle := facts.get("docker, idle memory"):
        lines.append(
            f"- The engine's shim process for each idle container, needed by every Docker executor: {idle['shim'] / 1e6:.1f} MB."
        )
    if found := facts.get("extraction"):
        lines.append(
            f"- Extraction: {found['bytes'] / 1e6:.1f} MB of recorded answers; in {found['right']} of {found['of']} answers with "
            "one known block, exactly that block was found."
        )
    return "\n".join(lines)


def page(figures, profile):
    """Return the whole page.

    Args:
        figures: The figures that `compare.py` has measured.
        profile: Text about where the time goes, written by hand.
    """
    seconds, facts = figures["seconds"], figures["facts"]
    names = [*c.FLOORS, *c.LIBRARIES, *c.OURS, "docker, process, preloaded", *c.POOLED]
    absent = (
        "\n".join(wrapped(f"- {name}: {reason}") for name, reason in figures["absent"].items())
        or "Nothing: every variant ran."
    )
    failed = "".join(
        f"\n{name} failed to start {count} times; these starts are not in its figures.\n"
        for name, count in figures.get("failed_starts", {}).items()
    ) + "".join(
        f"\n{name} broke {count} times with many blocks at once; these rounds are not in its figures.\n"
        for name, count in figures.get("failed_rounds", {}).items()
    )
    note = f"\n**{figures['note']}**\n" if figures["note"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    run = f"All variants were measured in one run on one machine ({figures['machine']}; {versions})."
    return f"""# Benchmarks

{wrapped(f"`make bench` writes this page. {run}")}

- Each of the other libraries runs in its own environment, in its newest release, with the sandbox image of this project plus a
  Jupyter gateway. It runs with its own default limits, which are none. The executors of this project run with their default
  limits, except for processors: all variants may use all of them.
- In each round the variants are measured in a new random order; the first round is not counted. A variant that gives a wrong
  answer has no time.
- Ratios are ratios of medians, with the 95 % confidence interval of a bootstrap.
- `make bench-quick` takes less than a minute and reports what got slower than in `benchmarks/last.json`.
{note}
## Targets

{targets_table(seconds, facts)}

{profile}

## All variants

{variants_table(seconds, names, CELLS)}

In brackets: how many times as fast as autogen-ext's Docker command line. For the echo, a "block" is the answer itself, sent to
`cat` and back. "From the pool" uses a sandbox that a `SandboxPool` has already started; the time to fill it is not included.

{variants_table(seconds, names, MORE)}

Blocks and sessions at once: wall-clock time for each block. Recorded session: all its blocks; AutoGen's executor keeps no state,
so there each block runs together with all blocks before it. Agent turn: a scripted model writes a block, the block runs, the
model reflects; in brackets compared with AutoGen's agent and its local executor, which has no sandbox.

{more_facts(facts)}

## How cost grows

{plots(figures["curves"])}

## Not measured

{absent}
{failed}"""


def readme_sentence(figures):
    """Return the sentence of the README: medians of our Docker executor and of AutoGen's."""

    def shown(cell, variant):
        return duration(statistics.median(figures["seconds"][cell][variant]))

    theirs = c.SLOW[0]
    return (
        f"A Python block takes {shown(c.PYTHON, 'docker, session')} in a session (AutoGen's Docker executor: "
        f"{shown(c.PYTHON, theirs)}), and a sandbox with its first block {shown(c.START, 'docker, process')} "
        f"({shown(c.START, theirs)})." + (f"\n\n**{figures['note']}**" if figures["note"] else "")
    )


def machine():
    """Describe the machine."""
    return f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
