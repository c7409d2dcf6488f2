"""K8. What a block's calls, results and errors cost the host's event loop, and the garbage collector, which stops it too."""

import gc
from pathlib import Path

import pytest
from autogen_agentchat.messages import CodeExecutionEvent

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch.checks import check_answer
from autogen_codeact.batch.tasks import Check, Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.runs import recorded

from ..agents.codeact import python
from ..agents.support import model_answer, scripted
from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Subject, one_kind

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
