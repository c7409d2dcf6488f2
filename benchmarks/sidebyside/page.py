"""The parts of docs/benchmarks.md that `compare.py` writes, and how programs write parts of a page."""

import os
import platform
import re
import statistics
import textwrap
import time

from . import cells as c
from .growth import CURVES
from .targets import TARGETS, judge

CELLS = [c.PYTHON, c.SHELL, c.START, c.STOP]
# Short names for the page; all of these run in Docker if nothing else is said.
SHORT = {
    c.COMMAND_LINE: "AutoGen",
    c.JUPYTER: "AutoGen, Jupyter",
    c.SMOLAGENTS: "smolagents",
    c.LLM: "llm-sandbox",
    c.LOCAL: "AutoGen without a sandbox",
    c.ECHO: "raw echo",
    c.RELAY: "raw relay",
    c.FORK: "raw fork",
}
GAINS = [c.COMMAND_LINE, c.SMOLAGENTS, c.LLM]
MORE = [c.PRELOADED, c.MANY, c.GOLDEN, c.TURN]


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
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_part(path, name, text):
    """Replace a part of a page, between `<!-- NAME: … -->` and `<!-- /NAME -->`."""
    pattern = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, count = pattern.subn(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", path.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{path.name} has no part {name}")
    path.write_text(new, encoding="utf-8")


def table(head, rows):
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def result(met, figure):
    """Return a cell that says whether a target is reached."""
    return f"{'reached' if met else '**missed**'}: {figure}"


def judged(found, wanted, unit="×"):
    """Return a figure; with its interval if that contains what is wanted, so that the result is not certain."""
    middle, low, high = found
    return number(middle) + unit + (f" ({number(low)} to {number(high)})" if low <= wanted <= high else "")


def targets_list(seconds, facts):
    """Return how many targets are reached, and the others with figures."""
    lines = {"Missed": [], "Not measured": []}
    reached = 0
    for target in TARGETS:
        found = judge(target, seconds, facts)
        text = target.cell if target.ours in target.cell else f"{target.cell}: {target.ours}"
        if found is None:
            lines["Not measured"].append(f"- {text}")
            continue
        wanted, unit = target.most if target.least is None else target.least, "×" if target.base else f" {target.unit}"
        against = f" as {SHORT.get(target.base, target.base)}" if target.base else ""
        if found["met"]:
            reached += 1
        else:
            lines["Missed"].append(f"- {text} **{judged(found['figure'], wanted, unit)}**, {target.wanted}{against}")
    parts = [f"{name}:\n\n" + "\n".join(map(wrapped, some)) for name, some in lines.items() if some]
    return "\n\n".join([f"{reached} of {len(TARGETS)} are reached.", *parts])


def compared(seconds, cell, name):
    """Return the median, and how many times as fast as AutoGen's executor; "-" if it was not measured."""
    values = seconds.get(cell, {}).get(name)
    base = seconds.get(cell, {}).get(c.LOCAL if cell == c.TURN else c.COMMAND_LINE)
    if not values:
        return "-"
    text = duration(statistics.median(values))
    return (
        f"{text} ({number(statistics.median(base) / statistics.median(values))}×)"
        if base and base is not values
        else text
    )


def variants_table(seconds, names, cells):
    """Return a table of variants and cells."""
    rows = [[SHORT.get(name, name), *(compared(seconds, cell, name) for cell in cells)] for name in names]
    return table(["p50", *cells], [row for row in rows if set(row[1:]) != {"-"}])


def variants_list(seconds, names, cells):
    """Return a line for each cell, with the variants that were measured."""
    lines = []
    for cell in cells:
        shown = [
            f"{SHORT.get(name, name)} {compared(seconds, cell, name)}"
            for name in names
            if seconds.get(cell, {}).get(name)
        ]
        if shown:
            lines.append(wrapped(f"- {cell[0].upper()}{cell[1:]}: {'; '.join(shown)}."))
    return "\n".join(lines)


def plots(curves):
    """Return the plots of what was measured; each has its title inside."""
    return "\n".join(
        f"![{CURVES[name][1]}](benchmarks/{name}.svg)" for name, lines in curves.items() if any(lines.values())
    )


def more_facts(facts):
    """Return the figures without a ratio."""
    memory = {
        "Docker, with numpy and pandas preloaded": (c.PRELOADED_MEMORY, "sandbox"),
        "Docker, session": ("docker, idle memory of a session", "sandbox"),
        "bubblewrap, session": ("bubblewrap, idle memory of a session", "sandbox"),
        "the engine's shim for each container, which every Docker executor needs": ("docker, idle memory", "shim"),
    }
    idle = [f"{name} {facts[key][part] / 1e6:.1f} MB" for name, (key, part) in memory.items() if facts.get(key)]
    lines = [wrapped(f"- Memory of an idle sandbox: {'; '.join(idle)}.")] if idle else []
    if found := facts.get("extraction"):
        lines.append(
            f"- Extraction: in {found['right']} of {found['of']} answers with one known block, exactly that was found."
        )
    return "\n".join(lines)


def everything(figures):
    """Return the part with all targets, variants and plots."""
    seconds, facts = figures["seconds"], figures["facts"]
    names = [*c.FLOORS, *c.LIBRARIES, *c.OURS, "docker, process, preloaded"]
    missing = [f"{name}: {reason}" for name, reason in figures["absent"].items()]
    missing += [f"{name}: {count} starts failed" for name, count in figures.get("failed_starts", {}).items()]
    missing += [
        f"{name}: {count} rounds with many blocks at once broke"
        for name, count in figures.get("failed_rounds", {}).items()
    ]
    return "\n\n".join(
        [
            *([f"**{figures['note']}**"] if figures["note"] else []),
            f"### Targets\n\n{targets_list(seconds, facts)}",
            f"### All variants\n\n{variants_table(seconds, names, CELLS)}",
            "\n".join(
                [variants_list(seconds, c.POOLED, [c.START]), variants_list(seconds, names, MORE), more_facts(facts)]
            ),
            f"### How cost grows\n\n{plots(figures['curves'])}",
            *(["### Not measured\n\n" + "\n".join(wrapped(f"- {line}") for line in missing)] if missing else []),
        ]
    )


def gains(figures):
    """Return the short table: medians of our executors and of the other libraries."""
    seconds = figures["seconds"]

    def row(name, cell, ours):
        medians = [
            duration(statistics.median(values)) if (values := seconds.get(cell, {}).get(variant)) else "-"
            for variant in (ours, *GAINS)
        ]
        return [name, f"**{medians[0]}**", *medians[1:]]

    rows = [
        row("a Python block in a new process (process mode)", c.PYTHON, "docker, process"),
        row("a Python block in a session, with a checkpoint", c.PYTHON, "docker, session"),
        row("a Python block in a session, without a checkpoint", c.PYTHON, "docker, session, no checkpoint"),
        row("a shell block", c.SHELL, "docker, process"),
        row("start a sandbox and run a first block", c.START, "docker, process"),
        row("the same, from a `SandboxPool`", c.START, "docker, process, from the pool"),
        row("the same, with bubblewrap", c.START, "bubblewrap, process"),
        row("stop a sandbox", c.STOP, "docker, process"),
        row("each of 50 blocks at once", c.AT_ONCE, "docker, process"),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    machine = f"{figures['machine']}; {versions}"
    return "\n\n".join(
        [
            table(["p50", "**autogen-codeact**", *(SHORT[name] for name in GAINS)], rows),
            wrapped(f"Medians, measured with `make bench` on {figures['day']} in one run on one machine ({machine})."),
            *([f"**{figures['note']}**"] if figures["note"] else []),
        ]
    )


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


def today():
    """Return the date for a page."""
    return time.strftime("%-d %B %Y")


def machine():
    """Describe the machine."""
    return f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
