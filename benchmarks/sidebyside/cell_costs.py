"""Three cells of the comparison, measured alone, with what their blocks use."""

from . import cells
from .harness import Failed

SHELL, MANY, SESSIONS = "shell", "sandboxes", "sessions"
NAMES = {
    SHELL: "shell block in a session",
    MANY: "32 sandboxes, a block in each at the same time",
    SESSIONS: "recorded sessions",
}
DOCKER, BUBBLEWRAP = "docker, session", "bubblewrap, session"
ECHO_MANY, ENV, ROLLBACK = "raw echo, as many streams at once", "bare `sh` that starts `env`", "of it: a rollback"
SMALL = {"language": "python", "code": "print(6 * 7)", "expect": "42\n"}
SH = {"language": "sh", "code": "echo $((6 * 7))", "expect": "42\n"}
BARE = {"language": "sh", "code": "echo $((6 * 7)); env > /dev/null", "expect": "42\n"}
ECHO = {"language": "echo", "code": "42\n", "expect": "42\n"}
# A session of `cells.golden_sessions` has about as many blocks.
LARGE_TIMES = 5


async def measure(bench, effort, names):
    """Measure cells, and return what their blocks use: {cell: {variant: use}}."""
    uses = {}

    async def use(cell, variant, keys, probe, shown=None, **arguments):
        try:
            found = await bench.where[variant].request("probe", name=probe, keys=keys, **arguments)
        except Failed as error:
            bench.miss(f"{shown or variant}, {NAMES[cell]}", error)
        else:
            uses.setdefault(cell, {})[shown or variant] = found

    if SHELL in names:
        await _shell(bench, effort, use)
    if MANY in names:
        await _many(bench, effort, use)
    if SESSIONS in names:
        await _sessions(bench, effort, use)
    return uses


async def _shell(bench, effort, use):
    variants = [cells.SUBPROCESS, cells.ECHO, cells.COMMAND_LINE, "docker, process", DOCKER, BUBBLEWRAP]
    await cells.blocks(bench, effort, variants[:1] + variants[2:], cells=(cells.SHELL,))
    for variant in variants:
        keys = await bench.open(variant)
        if keys:
            code = ECHO if variant == cells.ECHO else SH
            times = effort.blocks * (1 if variant == cells.COMMAND_LINE else LARGE_TIMES)
            await use(SHELL, variant, keys, "use of blocks", times=2, **code)
            await use(SHELL, variant, keys, "use of blocks", times=times, **code)
            if variant == cells.SUBPROCESS:
                await use(SHELL, variant, keys, "use of blocks", shown=ENV, times=times, **BARE)
        await bench.close(variant, keys)


async def _many(bench, effort, use):
    async def then(variant, keys):
        await use(MANY, variant, keys, "use of blocks together", times=effort.few, **SMALL)

    await cells.together(bench, effort, cells=(cells.MANY,), then=then)
    keys = await bench.open(cells.ECHO, effort.sandboxes)
    if keys:
        await use(MANY, cells.ECHO, keys, "use of blocks together", shown=ECHO_MANY, times=10 * effort.few, **ECHO)
    await bench.close(cells.ECHO, keys)


async def _sessions(bench, effort, use):
    await cells.golden(bench, effort)
    for variant in (DOCKER, BUBBLEWRAP):
        keys = await bench.open(variant)
        if keys:
            await use(
                SESSIONS, variant, keys, "use of rollbacks", shown=f"{variant}, {ROLLBACK}", sessions=effort.blocks
            )
            await use(SESSIONS, variant, keys, "use of sessions", sessions=cells.golden_sessions(effort.sessions))
        await bench.close(variant, keys)
    keys = await bench.open(cells.COMMAND_LINE)
    if keys:
        few = cells.golden_sessions(effort.sessions)[: effort.few]
        await use(SESSIONS, cells.COMMAND_LINE, keys, "use of sessions", sessions=few)
    await bench.close(cells.COMMAND_LINE, keys)
