"""The targets and whether they are reached: ratios of medians with the 95 % confidence interval of a bootstrap."""

import random
import statistics
from dataclasses import dataclass

from . import cells as c

BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Target:
    """One row of the table.

    Args:
        cell: What is measured.
        ours: Which of our variants.
        base: What it is measured against, or None for an absolute figure.
        least: The base takes at least this many times as long.
        most: We take at most this many times as long, or without a base at most this value, in `unit`.
        unit: "ms", "MB", "MB/s" or "s".
        key: Cell in the figures; the same as `cell` by default.
    """

    cell: str
    ours: str
    base: str | None = None
    least: float | None = None
    most: float | None = None
    unit: str = "ms"
    key: str = ""

    @property
    def wanted(self):
        """The target as text."""
        if self.base is None:
            return f"≤ {self.most:g} {self.unit}" if self.least is None else f"≥ {self.least:g} {self.unit}"
        return f"≥ {self.least:g}× as fast" if self.least is not None else f"≤ {self.most:g}× as long"


DOCKER = "docker, process"
BARE_SESSION = "docker, session, no checkpoint"
TARGETS = [
    Target("Python block", DOCKER, c.COMMAND_LINE, 25, key=c.PYTHON),
    Target("Python block", "docker, session", c.COMMAND_LINE, 30, key=c.PYTHON),
    Target("Python block", BARE_SESSION, c.COMMAND_LINE, 100, key=c.PYTHON),
    Target("shell block", DOCKER, c.COMMAND_LINE, 15, key=c.SHELL),
    Target("shell block", "docker, session", most=4, key=c.SHELL),
    *[Target("Python block", "docker, session", each, 30, key=c.PYTHON) for each in (c.JUPYTER, c.SMOLAGENTS)],
    *[Target("Python block", BARE_SESSION, each, 80, key=c.PYTHON) for each in (c.JUPYTER, c.SMOLAGENTS)],
    Target("Python block", BARE_SESSION, c.ECHO, most=3, key=c.PYTHON),
    Target("block that imports pandas and matplotlib", "docker, process, preloaded", DOCKER, 50, key=c.PRELOADED),
    Target(c.START, DOCKER, c.COMMAND_LINE, most=0.6),
    Target(c.START, "bubblewrap, process", most=60),
    Target(c.START, "docker, process, from the pool", most=10),
    Target(c.START, "bubblewrap, process, from the pool", most=10),
    Target(c.STOP, DOCKER, c.COMMAND_LINE, 50),
    Target(c.AT_ONCE, DOCKER, c.COMMAND_LINE, 20),
    Target(c.MANY, "docker, session", c.COMMAND_LINE, 20),
    Target("recorded sessions of several blocks", "docker, session", c.COMMAND_LINE, 20, key=c.GOLDEN),
    Target("idle sandbox: memory", "docker", most=14, unit="MB", key="idle memory"),
    Target("idle sandbox: memory", "bubblewrap", most=14, unit="MB", key="idle memory"),
    Target("null host-tool call", "docker", most=0.45, key="null tool call"),
    Target("null host-tool call", "bubblewrap", most=0.45, key="null tool call"),
    Target("recovery: deadline → next good result", "docker", most=50, key="recovery"),
    Target("recovery: deadline → next good result", "bubblewrap", most=50, key="recovery"),
    Target("100 MB of stdout", "docker", "`cat` to a pipe", most=2, key="much output"),
    Target("100 MB of stdout", "bubblewrap", "`cat` to a pipe", most=2, key="much output"),
    Target("100 MB of stdout: host memory grows by", "docker", most=16, unit="MB", key="grown"),
    Target("extraction", "extract_code_blocks", least=20, unit="MB/s", key="extraction"),
    Target("agent turn", "docker, process", c.LOCAL, most=1, key=c.TURN),
    Target(c.HELP, c.HELP, most=300, key="start-up"),
    Target(f"`{c.IMPORT}`, beyond `{c.CORE}`", c.IMPORT, most=100, key="beyond"),
    Target(f"`{c.LOAD}`, beyond `{c.CORE}`", c.LOAD, most=100, key="beyond"),
]


def _facts(target, key, facts):
    """Return the samples of a fact, which is measured without variants."""
    mine = facts.get(f"{target.ours}, {key}")
    much = facts.get(f"{target.ours}, much output")
    text = facts.get("extraction")
    return {
        "idle memory": lambda: ([mine["sandbox"] / 1e6] if mine else [], []),
        "null tool call": lambda: ([1e3 * value for value in mine or []], []),
        "recovery": lambda: ([1e3 * value for value in mine or []], []),
        "much output": lambda: (much["ours"], much["cat"]) if much else ([], []),
        "grown": lambda: ([much["grown"] / 1e6] if much else [], []),
        "extraction": lambda: ([text["bytes"] / value / 1e6 for value in text["seconds"]] if text else [], []),
    }.get(key)


def samples(target, seconds, facts):
    """Return the samples of ours and of the base; empty if there are none."""
    key = target.key or target.cell
    if found := _facts(target, key, facts):
        return found()
    if key == "beyond":
        values = seconds.get("start-up", {})
        core = values.get(c.CORE, [])
        return [1e3 * (value - statistics.median(core)) for value in values.get(target.ours, []) if core], []
    values = seconds.get(key, {})
    ours = values.get(target.ours, [])
    return ([1e3 * value for value in ours], []) if target.base is None else (ours, values.get(target.base, []))


def interval(values, base, middle=statistics.median, seed=0):
    """Return the ratio of base to values, or without a base the middle of the values, with its 95 % interval."""
    chance = random.Random(seed)

    def drawn():
        value = middle(chance.choices(values, k=len(values)))
        return middle(chance.choices(base, k=len(base))) / value if base else value

    many = sorted(drawn() for _ in range(BOOTSTRAPS))
    found = middle(base) / middle(values) if base else middle(values)
    return found, many[int(0.025 * BOOTSTRAPS)], many[int(0.975 * BOOTSTRAPS)]


def judge(target, seconds, facts):
    """Return the figure with its interval and whether it reaches the target; None if it was not measured."""
    ours, base = samples(target, seconds, facts)
    if not ours or (target.base is not None and not base):
        return None
    middle = statistics.fmean if target.key == c.GOLDEN else statistics.median
    longer = target.base is not None and target.most is not None
    figure = interval(*((base, ours) if longer else (ours, base)), middle)
    met = figure[0] >= target.least if target.least is not None else figure[0] <= target.most
    return {"figure": figure, "met": met, "ours": middle(ours), "base": middle(base) if base else None}
