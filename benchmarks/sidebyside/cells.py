"""The measurements (cells). Each function measures some of them; in every round the variants run in a new order."""

from dataclasses import dataclass

PYTHON, SHELL, START, STOP = "python block", "shell block", "create → first result", "stop"
AT_ONCE, MANY, TURN = "50 blocks at once, one sandbox", "32 sessions, 32 sandboxes", "agent turn"
COMMAND_LINE, JUPYTER = "autogen-ext Docker command line", "autogen-ext Docker Jupyter"
SMOLAGENTS, LLM, LOCAL = "smolagents Docker", "llm-sandbox Docker", "autogen-ext local (no sandbox)"
TREE = "smolagents LocalPythonExecutor (no sandbox)"
ECHO, SUBPROCESS, DOCKER_RUN = "raw echo over an attached stream (limit)", "bare subprocess", "docker run --rm"
FLOORS = ["in-process exec (floor)", ECHO, SUBPROCESS, DOCKER_RUN]
LIBRARIES = [COMMAND_LINE, JUPYTER, SMOLAGENTS, LLM, TREE, LOCAL]
# Their stop waits ten seconds for a process that ignores SIGTERM.
SLOW = [COMMAND_LINE, JUPYTER, SMOLAGENTS, LLM]
WAYS = ["process", "session", "session, no checkpoint"]
KINDS = ["docker", "bubblewrap"]
OURS = [f"{kind}, {way}" for kind in KINDS for way in WAYS]
POOLED = [f"{kind}, {way}, from the pool" for kind in KINDS for way in ("process", "session")]
CODE = {
    PYTHON: {"python": "print(6 * 7)", "echo": "42\n"},
    SHELL: {"sh": "echo $((6 * 7))"},
}


@dataclass(frozen=True)
class Effort:
    """Numbers of repetitions.

    Args:
        rounds: Rounds of blocks.
        blocks: Blocks in each round.
        starts: Starts and stops of each variant.
        slow_starts: The same for variants whose stop takes ten seconds.
        few: Repetitions of slow measurements.
        sandboxes: Concurrent sandboxes.
    """

    rounds: int = 12
    blocks: int = 8
    starts: int = 10
    slow_starts: int = 2
    few: int = 5
    sandboxes: int = 32


TINY = Effort(rounds=2, blocks=3, starts=2, slow_starts=1, few=2, sandboxes=4)


async def blocks(bench, effort, variants, cells=(PYTHON, SHELL)):
    """Measure blocks in sandboxes that all run, while the others are idle."""
    keys = {variant: await bench.open(variant) for variant in bench.shuffled(variants)}
    for number in range(effort.rounds + 1):
        for cell in cells:
            for variant in bench.shuffled(variants):
                for language, code in CODE[cell].items():
                    if language in bench.languages[variant]:
                        # The first round warms up.
                        times = 1 if variant == DOCKER_RUN else effort.blocks
                        block = {"key": keys[variant][0], "language": language, "code": code, "times": times}
                        await bench.run(cell if number else "warm-up", variant, **block)
    bench.seconds.pop("warm-up", None)
    for variant in variants:
        await bench.close(variant, keys.get(variant))


async def starts_and_stops(bench, effort, variants):
    """Measure starts and stops."""
    for number in range(effort.starts + 1):
        for variant in bench.shuffled(variants):
            if variant in SLOW and number > effort.slow_starts:
                continue
            keys = await bench.open(variant, cell=START if number or variant in SLOW else None)
            await bench.close(variant, keys, cell=STOP if number or variant in SLOW else None)


async def together(bench, effort):
    """Measure many concurrent blocks in one sandbox, and one block in each of many sandboxes."""
    one = [COMMAND_LINE, LLM, "docker, process", "bubblewrap, process"]
    many = [COMMAND_LINE, "docker, session", "bubblewrap, session"]
    for cell, variants, count, sandboxes in ((AT_ONCE, one, 50, 1), (MANY, many, 1, effort.sandboxes)):
        for variant in variants:
            # One kind at a time: 96 sandboxes of three kinds together would measure the memory of the machine.
            keys = await bench.open(variant, sandboxes)
            for number in range(effort.few + 1):
                request = {"keys": keys, "count": count, "language": "python", "code": CODE[PYTHON]["python"]}
                seconds = await bench.persist(cell, variant, "together", **request) if keys else None
                if seconds is not None and number:
                    bench.seconds[cell][variant].append(seconds / (count * sandboxes))
            await bench.close(variant, keys)


async def turns(bench, effort):
    """Measure agent turns with a scripted model: AutoGen's agent with its local executor, ours with ours."""
    variants = [LOCAL, "docker, process", "docker, session", "bubblewrap, process", "bubblewrap, session"]
    keys = {variant: await bench.open(variant) for variant in variants}
    for number in range(effort.rounds + 1):
        for variant in bench.shuffled(variants):
            for _ in range(2):
                seconds = await bench.attempt(variant, "probe", name="agent turn", key=keys[variant][0])
                if seconds is not None and number:
                    bench.seconds[TURN][variant].append(seconds)
    for variant in variants:
        await bench.close(variant, keys[variant])


async def singles(bench, effort):
    """Measure what only concerns our executors."""
    for kind in KINDS:
        await bench.fact(f"{kind}, idle memory", "idle memory", kind=kind)
        await bench.fact(f"{kind}, tool call", "tool call", kind=kind)
        await bench.fact(f"{kind}, recovery", "recovery", kind=kind, times=2 * effort.few)
