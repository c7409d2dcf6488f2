"""H10, H11 and K8. Large values of tools, images, and many calls: neither the event loop nor the memory suffers."""

import gc
from pathlib import Path

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import Image
from autogen_core.models import UserMessage

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.observation import as_message, metadata_of
from autogen_codeact.batch.checks import check_answer
from autogen_codeact.batch.tasks import Check, Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.runs import recorded

from ..agents.codeact import python
from ..agents.support import model_answer, scripted
from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB, forget_peak, peak_memory
from .subject import Kind, Subject, one_kind


async def count(numbers: list[int]) -> int:
    """Count numbers."""
    return len(numbers)


async def rows(rows: list[dict[str, float]]) -> int:
    """Count rows."""
    return len(rows)


async def anything(thing):
    """Take anything."""
    return 1


async def text() -> str:
    """Give 3.9 MB of text."""
    return "x" * 3_900_000


async def numbers() -> list[int]:
    """Give 3.9 MB of numbers."""
    return list(range(550_000))


async def nothing(text: str) -> None:
    """Do nothing."""


TOOLS = [count, rows, anything, text, numbers, nothing]


async def check_description(result: ExecutionResult) -> None:
    """Do what an agent does with a result."""
    metadata = metadata_of(result)
    assert sum(map(len, metadata.values())) < 100_000
    message = await as_message(result, "coder", vision=False)
    assert len(str(message.content)) < 100_000


ARGUMENTS = {
    "numbers": "count(list(range(140_000)))",
    "wrong numbers": "count(['x'] * 200_000)",
    "rows": "rows([{'a': 1.0}] * 49_000)",
    "anything": "anything(list(range(140_000)))",
    "text": "anything('x' * 1_000_000)",
}


# Case H10.
@one_kind
@pytest.mark.parametrize("call", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_of_a_megabyte_do_not_stall_the_loop(subject: Subject, call: str) -> None:
    subject.kept = 64 * MIB
    await subject.start({"tools": TOOLS, "timeout": 30})

    async def load() -> None:
        await check_description(
            await subject.run(f"try: {call}\nexcept TypeError as error: print(str(error)[:500])", timeout=30)
        )

    assert await median_excess(load) < MOST_EXCESS_S


# Case H10.
@one_kind
@pytest.mark.timeout(150)  # three rounds, also on a busy machine
@pytest.mark.parametrize(("tool", "many"), [("text", 16), ("numbers", 4)])
async def test_results_of_four_megabytes_do_not_stall_the_loop(subject, tool, many):
    # All results of a block are kept until it ends: 62 MB as JSON, and numbers take eight times that as objects. Sixteen more,
    # of 4 MB each, may be on their way.
    subject.kept = (144 if tool == "text" else 256) * MIB
    await subject.start({"tools": TOOLS, "timeout": 60})
    code = f"""
        from concurrent.futures import ThreadPoolExecutor
        list(ThreadPoolExecutor(16).map(lambda n: len({tool}()), range({many})))
        1 / 0
    """

    async def load() -> None:
        result = await subject.run(code, timeout=60)
        assert len(result.tool_calls) == many
        await check_description(result)

    assert await median_excess(load) < 2 * MOST_EXCESS_S


MOST_GROWTH = 64 * MIB

# Sandboxes of bubblewrap may have neither Pillow nor numpy.
MAKE = """
    import struct, zlib

    def chunk(kind, body):
        return struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body))

    def image(name, width, height, rows=None, depth=8, colour=6, before=b"", after=b""):
        packer, packed = zlib.compressobj(1), []
        row = bytes(1 + width * depth * {0: 1, 2: 3, 6: 4}[colour] // 8)
        for _ in range(height if rows is None else rows):
            packed.append(packer.compress(row))
        header = struct.pack("!IIBBBBB", width, height, depth, colour, 0, 0, 0)
        with open(name, "wb") as file:
            file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + before)
            file.write(chunk(b"IDAT", b"".join(packed) + packer.flush()) + after + chunk(b"IEND", b""))

    def four(*arguments, count=4, **options):
        image("0.png", *arguments, **options)
        for number in range(1, count):
            open(f"{number}.png", "wb").write(open("0.png", "rb").read())
"""
LOADS = {
    "40 megapixels": "four(8000, 4960, colour=2)",
    "as large as is shown": "four(3600, 2400, depth=16)",
    "more than the header says": "four(100, 100, rows=250_000)",
    "two thousand million a side": "four(2**31 - 1, 2**31 - 1, rows=0)",
    "a bomb in a comment": """
bomb = zlib.compress(bytes(100_000_000), 9)
four(9, 9, before=chunk(b'zTXt', b'a\\0\\0' + bomb) + chunk(b'iCCP', b'a\\0\\0' + bomb))""",
    "many chunks": "four(9, 9, after=chunk(b'tEXt', b'') * 300_000)",
    "many markers": "for n in range(4): open(f'{n}.jpg', 'wb').write(b'\\xff\\xd8' + b'\\xff\\xe0\\0\\2' * 900_000)",
    "padded markers": "for n in range(4): open(f'{n}.jpg', 'wb').write(b'\\xff\\xd8' + b'\\xff' * 4_000_000)",
    "many blocks": "for n in range(4): open(f'{n}.gif', 'wb').write(b'GIF89a\\1\\0\\1\\0\\0\\0\\0' + b'!\\xf9\\0' * 1_300_000)",
    "five hundred files": "four(2000, 1000, count=500)",
}


async def shown(result: ExecutionResult) -> UserMessage:
    """Tell a model of the result, and send that as AutoGen's clients do."""
    message = await as_message(result, "coder", vision=True)
    for part in message.content:
        if isinstance(part, Image):
            assert part.image.size
            part.to_openai_format()
    return message


# What the host does with images is the same code with each engine, so one of them is enough for most loads.
# Case H11.
@pytest.mark.parametrize(
    ("kind", "load"),
    [(Kind("bubblewrap", "process"), load) for load in LOADS]
    + [(Kind("docker", "session"), load) for load in ("40 megapixels", "five hundred files")],
    indirect=["kind"],
    ids=str,
)
async def test_images_take_little_memory_and_do_not_stall_the_host(subject: Subject, load: str) -> None:
    await subject.start(memory="400m", workspace="64m")
    subject.kept = 64 * MIB
    result = await subject.run(MAKE + "\n".join(f"    {line}" for line in LOADS[load].splitlines()), timeout=60)
    assert result.outcome == "ok", result
    assert result.artifacts

    gc.collect()
    before = forget_peak()
    await shown(result)
    assert peak_memory() - before < MOST_GROWTH
    assert await median_excess(lambda: shown(result)) < MOST_EXCESS_S


CALLS = """
from concurrent.futures import ThreadPoolExecutor
done = list(ThreadPoolExecutor(16).map(lambda n: {call}, range({count})))
"""


# Case K8.
@one_kind
@pytest.mark.timeout(150)  # ten thousand calls, also on a busy machine
@pytest.mark.parametrize(
    ("count", "logged"), [(3_000, False), (10_000, True)], ids=["without a log", "in a run with a log"]
)
async def test_of_ten_thousand_calls_one_object_each_is_kept(
    subject: Subject, tmp_path: Path, count: int, logged: bool
) -> None:
    subject.kept = 64 * MIB
    found: list[int] = []

    async def note(number: int) -> None:
        """Count what the garbage collector looks at."""
        if number in (count // 10, count // 10 * 9):
            gc.collect()
            found.append(len(gc.get_objects()))

    executor = await subject.start({"tools": [note], "timeout": 100})
    code = python(CALLS.format(call="note(n)", count=count))
    agent = CodeActAgent("actor", executor, model_client=scripted(model_answer(code), model_answer("Done.")))
    running = recorded(agent, task="Call.", path=tmp_path / "run") if logged else agent.run_stream(task="Call.")
    messages = [message async for message in running]
    gc.collect()
    # A collection takes the longer the more there is, and begins when a quarter more is there than at the last one.
    assert found[1] - found[0] < 1.2 * 0.8 * count
    assert len(gc.get_objects()) - found[0] < 1.3 * count
    ended = next(each for each in messages if isinstance(each, CodeExecutionEvent))
    assert isinstance(ended.result, ExecutionResult)
    assert [call.outcome for call in ended.result.tool_calls] == ["ok"] * count


# Case K8.
@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (Check(kind="exact", expected="é\udc80" * 500_000), "é\udc80" * 500_000),
        (Check(kind="exact", expected="1"), "e" + "\u0301 " * 499_000),
        (Check(kind="number", expected="1"), "1," * 500_000),
        (Check(kind="regex", expected="(a|b)" * 3_900), "1" * 1_000_000),
        (Check(kind="regex", expected="(a+)+$", timeout=1.0), "a" * 60 + "!"),
        (Check(kind="regex", expected="("), "1"),
    ],
    ids=["exact", "marks", "number", "long pattern", "backtracking", "invalid pattern"],
)
async def test_checks_of_answers_do_not_stall_the_event_loop(bubblewrap: None, check: Check, answer: str) -> None:
    """Patterns run in a sandbox."""

    class Sandboxes:
        async def executor(self) -> BubblewrapCommandLineCodeExecutor:
            return BubblewrapCommandLineCodeExecutor(mode="session")

    async def load() -> None:
        (found,) = await check_answer(Task(id="1", task="t", check=check), answer, Sandboxes())
        assert (found.kind, found.passed) == (check.kind, len(answer) == 1_000_000 and check.kind != "regex")

    assert await median_excess(load) < MOST_EXCESS_S
