"""The parts of docs/benchmarks.md and README.md that `compare.py` writes, and how programs write parts of a page."""

import os
import platform
import re
import statistics
import textwrap
import time

from . import cells as c

PEERS = {c.COMMAND_LINE: "AutoGen", c.JUPYTER: "AutoGen, Jupyter", c.SMOLAGENTS: "smolagents", c.LLM: "llm-sandbox"}
ROWS = [
    ("a Python block in a new process (process mode)", c.PYTHON, "docker, process"),
    ("a Python block in a session, with a checkpoint", c.PYTHON, "docker, session"),
    ("a Python block in a session, without a checkpoint", c.PYTHON, "docker, session, no checkpoint"),
    ("a shell block", c.SHELL, "docker, process"),
    ("start a sandbox and run a first block", c.START, "docker, process"),
    ("the same, from a `SandboxPool`", c.START, "docker, process, from the pool"),
    ("the same, with bubblewrap", c.START, "bubblewrap, process"),
    ("stop a sandbox", c.STOP, "docker, process"),
    ("each of 50 blocks at once", c.AT_ONCE, "docker, process"),
    ("a block in each of 32 sandboxes at once", c.MANY, "docker, session"),
]


def wrapped(text):
    """Break a paragraph, or an item of a list, into lines as long as those of the other pages."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 130, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def duration(seconds):
    """Format a duration."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


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


def median(seconds, cell, variant):
    """Return a median as text; "-" if it was not measured."""
    values = seconds.get(cell, {}).get(variant)
    return duration(statistics.median(values)) if values else "-"


def gains(figures):
    """Return the part of docs/benchmarks.md."""
    seconds = figures["seconds"]
    rows = [
        [name, f"**{median(seconds, cell, ours)}**", *(median(seconds, cell, peer) for peer in PEERS)]
        for name, cell, ours in ROWS
    ]
    bounds = [f"{name} {median(seconds, c.PYTHON, name)}" for name in c.FLOORS if name != c.ECHO]
    turns = [f"{name} {median(seconds, c.TURN, name)}" for name in seconds.get(c.TURN, {})]
    missing = [f"- {name}: {reason}" for name, reason in figures["absent"].items()]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    lines = [
        f"- Without a sandbox, or with a container for each block: {'; '.join(bounds)}.",
        f"- {c.ECHO}: {median(seconds, c.PYTHON, c.ECHO)}.",
        f"- An agent turn with a scripted model: {'; '.join(turns)}.",
        *(own_figures(kind, figures["facts"]) for kind in c.KINDS),
    ]
    parts = [
        table(["p50", "**autogen-codeact**", *PEERS.values()], rows),
        "\n".join(map(wrapped, lines)),
        wrapped(
            f"Medians, measured with `make bench` on {figures['day']} in one run on one machine ({figures['machine']}; "
            f"{versions})."
        ),
        *([f"**{figures['note']}**"] if figures["note"] else []),
        *(["Not measured:\n\n" + "\n".join(map(wrapped, missing))] if missing else []),
    ]
    return "\n\n".join(parts)


def own_figures(kind, facts):
    """Return a line with what was measured of our executors alone."""
    shown = []
    if memory := facts.get(f"{kind}, idle memory"):
        shown.append(f"an idle sandbox takes {memory['sandbox'] / 1e6:.1f} MB")
    if calls := facts.get(f"{kind}, tool call"):
        shown.append(f"a call of a host tool takes {duration(statistics.median(calls))}")
    if recovery := facts.get(f"{kind}, recovery"):
        shown.append(
            f"a block after a timeout has its result {duration(statistics.median(recovery))} after the deadline"
        )
    return f"- {kind.capitalize()}: {'; '.join(shown) or 'not measured'}."


def readme_sentence(figures):
    """Return the sentence of the README: medians of our Docker executor and of AutoGen's."""
    seconds = figures["seconds"]
    return (
        f"A Python block takes {median(seconds, c.PYTHON, 'docker, session')} in a session (AutoGen's Docker executor: "
        f"{median(seconds, c.PYTHON, c.COMMAND_LINE)}), and a sandbox with its first block "
        f"{median(seconds, c.START, 'docker, process')} ({median(seconds, c.START, c.COMMAND_LINE)})."
        + (f"\n\n**{figures['note']}**" if figures["note"] else "")
    )


def today():
    """Return the date for a page."""
    return time.strftime("%-d %B %Y")


def machine():
    """Describe the machine."""
    return f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
