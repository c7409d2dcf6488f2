"""The part of the page about cells of the comparison that missed their aim, and what they consist of."""

import statistics
import textwrap

from . import cells
from .cell_costs import DOCKER, ECHO_MANY, ENV, MANY, NAMES, ROLLBACK, SESSIONS, SHELL
from .page import duration
from .targets import interval

# The aims of these cells: how many times as fast as AutoGen's executor, and milliseconds.
AIM_TIMES, AIM_SHELL_MS = 15, 4
KEYS = {SHELL: cells.SHELL, MANY: cells.MANY, SESSIONS: cells.GOLDEN}


def targets(figures):
    """Return rows for the table of targets: what is wanted, what was measured, whether it is reached."""
    rows, seconds = [], figures["seconds"]
    for cell in (MANY, SESSIONS):
        ours, base = (seconds.get(KEYS[cell], {}).get(variant) for variant in (DOCKER, cells.COMMAND_LINE))
        if ours and base:
            middle = statistics.fmean if cell == SESSIONS else statistics.median
            found = interval(ours, base, middle)
            text = f"**{found[0]:.3g}×** ({found[1]:.3g} to {found[2]:.3g})"
            text += f", {duration(middle(ours))} and {duration(middle(base))}"
            rows.append((f"{NAMES[cell]}, {DOCKER}: ≥ {AIM_TIMES}× {cells.COMMAND_LINE}", text, found[0] >= AIM_TIMES))
    if ours := seconds.get(cells.SHELL, {}).get(DOCKER):
        found = [1e3 * value for value in interval(ours, None)]
        text = f"**{found[0]:.3g} ms** ({found[1]:.3g} to {found[2]:.3g})"
        rows.append((f"{NAMES[SHELL]}, {DOCKER}: ≤ {AIM_SHELL_MS} ms", text, found[0] <= AIM_SHELL_MS))
    return rows


def section(figures):
    """Return the tables and what follows from them."""
    uses, parts = figures["uses"], [HEAD]
    lines = [
        "| for each block (recorded sessions: for each session) | time | processor | containers | client | engine | rest "
        "| context switches | page faults | times that a processor went to sleep |",
        "|---" * 10 + "|",
    ]
    lines += [_row(f"{NAMES[cell]}: {variant}", use) for cell in NAMES for variant, use in uses.get(cell, {}).items()]
    parts.append("\n".join(lines) + "\n")
    parts += [text for text in (_shell(figures), _many(figures), _sessions(figures)) if text]
    parts += [f"Not measured: {name}: {reason}\n" for name, reason in figures["absent"].items()]
    return "\n".join(parts)


HEAD = """`python benchmarks/compare.py --only shell sandboxes sessions` measures these cells alone. The processor time is that of
the machine, in parts as above. With bubblewrap, what runs in the sandbox is in "rest".
"""


def each(use):
    """Return what a block uses: milliseconds of time and of processor time in parts, and what the machine counts."""
    count, processor = use["count"], use["processor"]
    ms = {name: 1e3 * (value or 0.0) / count for name, value in processor.items()}
    return {
        "time": 1e3 * use["seconds"] / count,
        **ms,
        "rest": max(0.0, ms["machine"] - ms["containers"] - ms["client"] - ms["engine"]),
        **{name: use[name] / count for name in ("switches", "faults", "idles")},
    }


def _row(name, use):
    found = each(use)
    parts = " | ".join(
        f"{found[part]:.2f} ms" for part in ("time", "machine", "containers", "client", "engine", "rest")
    )
    counts = " | ".join(f"{found[part]:,.0f}" for part in ("switches", "faults", "idles"))
    return f"| {name} | {parts} | {counts} |"


def _of(figures, cell, *variants):
    """Return what some variants use in a cell, or None if one of them is missing."""
    uses = figures["uses"].get(cell, {})
    return [each(uses[variant]) for variant in variants] if all(variant in uses for variant in variants) else None


def _bullet(text):
    return textwrap.fill(text, 126, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _ms(value):
    return f"{value:.2f} ms"


def _shell(figures):
    found = _of(figures, SHELL, DOCKER, "docker, process", cells.ECHO, cells.SUBPROCESS, ENV)
    if found is None:
        return ""
    ours, process, echo, bare, env = found
    left = ours["time"] - env["time"] - echo["time"]
    return _bullet(
        f"**A shell block in a session** takes {_ms(ours['time'])}. On the host, a bare `sh` takes {_ms(bare['time'])}, and "
        f"{_ms(env['time'])} if it also starts `env`, as a session's shell does at its end to keep the variables. The way of the "
        f"bytes through the engine and back takes {_ms(echo['time'])}. What remains, {_ms(left)}, is the session's own work: "
        f"processes are woken one after the other ({ours['switches']:.0f} context switches, and {ours['idles']:.1f} times a "
        f"processor had gone to sleep), and the new process copies pages ({ours['faults']:,.0f} page faults with those of both "
        f"programs, after {process['faults']:,.0f} in process mode, which keeps no variables and takes {_ms(process['time'])})."
    )


def _many(figures):
    found = _of(figures, MANY, DOCKER, cells.COMMAND_LINE, ECHO_MANY)
    if found is None:
        return ""
    ours, autogen, echo = found
    processors, wanted = figures["processors"], autogen["time"] / AIM_TIMES
    return _bullet(
        f"**A block in each of many sandboxes at the same time** keeps all processors busy: {_ms(ours['machine'])} of processor "
        f"time a block are at least {_ms(ours['machine'] / processors)} on {processors} processors, and {_ms(ours['time'])} were "
        f"measured. {AIM_TIMES}× AutoGen's executor would be {_ms(wanted)}, with {_ms(wanted * processors)} of processor time "
        f"for everything. The containers use {_ms(ours['containers'])} (fork, page faults, the block), the driver "
        f"{_ms(ours['client'])}, the engine's processes, which copy each stream, {_ms(ours['engine'])}, and the rest "
        f"{_ms(ours['rest'])} (shims, which copy it, too, and the kernel). Echoes over as "
        f"many streams need {_ms(echo['machine'])} each, although nothing runs."
    )


def _sessions(figures):
    found = _of(figures, SESSIONS, DOCKER, cells.COMMAND_LINE, f"{DOCKER}, {ROLLBACK}")
    if found is None:
        return ""
    ours, autogen, rollback = found
    use = figures["uses"][SESSIONS][DOCKER]
    blocks, left = use["blocks"] / use["count"], ours["time"] - rollback["time"]
    return _bullet(
        f"**A recorded session** of {blocks:.1f} blocks takes {_ms(ours['time'])}: {_ms(rollback['time'])} for the return to its "
        f"beginning, which AutoGen's executor does not do, and {_ms(left / blocks)} for each block with its checkpoint. A "
        f"session causes {ours['faults']:,.0f} page faults, because its blocks are larger than those above. "
        f"{AIM_TIMES}× AutoGen's executor would be {_ms(autogen['time'] / AIM_TIMES)}. "
        f"The processor time of a session is {_ms(ours['machine'])}, in parts at the same time: "
        f"{_ms(ours['containers'])} in the container, {_ms(ours['client'])} in the driver, {_ms(ours['engine'])} in the engine. "
        f"Without any return to the beginning it would be {autogen['time'] / left:.1f}×."
    )
