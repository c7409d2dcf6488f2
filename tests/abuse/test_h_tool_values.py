"""H. Large arguments and results of host tools: neither the event loop nor the host's memory suffers from them."""

import pytest

from autogen_codeact.agents.observation import as_message, metadata_of
from autogen_codeact.executors import ExecutionResult

from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Subject, one_kind


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
