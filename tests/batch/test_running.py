"""`run_batch` with real sandboxes, AutoGen's own client and a scripted server."""

import asyncio
import json
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.budget import Budget
from autogen_codeact.batch import Task
from autogen_codeact.batch.progress import AttemptFailed, BatchEvent
from autogen_codeact.batch.results import LEFT_OUT, MAX_ANSWER, Row
from autogen_codeact.runs import load_run
from tests.agents.support import scripted
from tests.batch.support import MakeAgent, answer, asked, batch, double, lines, load_rows, once, rows_of
from tests.cases import case
from tests.openai_server import OpenAIServer, Reply


async def test_row_has_everything_about_its_run(server: OpenAIServer, make: MakeAgent, tmp_path: Path) -> None:
    (row,) = await rows_of(make, [double(4)], tmp_path / "out")

    started = load_run(tmp_path / "out" / str(row.log)).started
    assert row.started is not None
    assert row.seconds > 0
    assert row == Row(
        id="double/4",
        outcome="completed",
        answer="8",
        steps=2,
        model_calls=2,
        prompt_tokens=14,
        completion_tokens=6,
        seconds=row.seconds,
        run=started.run,
        log=row.log,
        started=row.started,
        task=str(double(4).task),
        metadata={"number": 4},
    )
    assert lines(tmp_path / "out") == [row.model_dump(mode="json")]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "batch.json", "lock", "results.jsonl", "runs", "summary.json",
    ]  # fmt: skip


async def test_all_tasks_are_done_once_before_they_are_repeated(
    server: OpenAIServer, make: MakeAgent, tmp_path: Path
) -> None:
    def tasks() -> Any:
        yield from (double(1), double(2))

    rows = [row async for row in batch(make, tasks(), tmp_path, repeat=2, concurrency=1)]

    assert [(row.id, row.repeat, row.answer) for row in rows] == [
        ("double/1", 1, "2"), ("double/2", 1, "4"), ("double/1", 2, "2"), ("double/2", 2, "4"),
    ]  # fmt: skip
    assert len({row.log for row in rows}) == 4


async def test_attempt_that_failed_goes_on_from_its_log(bubblewrap: None, tmp_path: Path) -> None:
    replies = ["```python\nx = 3\n```", Reply(status=503, content="busy"), "```python\nfinal_answer(x * 2)\n```"]
    async with OpenAIServer(replies) as server:
        events: list[BatchEvent] = []
        (row,) = await rows_of(MakeAgent(server.client()), [double(3)], tmp_path, on_event=events.append)

        assert asked(server) == {(3, 0): 1, (3, 1): 2}
    assert (row.outcome, row.answer, row.steps, row.model_calls) == ("completed", "6", 2, 2)
    assert (row.prompt_tokens, row.completion_tokens) == (14, 6)
    assert (row.attempts, row.resumed) == (2, 1)
    (failed,) = events
    assert isinstance(failed, AttemptFailed)
    assert failed.retry_in is not None
    assert len(list((tmp_path / "runs").iterdir())) == 1


async def test_error_that_stays_is_not_tried_again(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    for status in [400, 401, 404]:
        with case(status):
            tmp_path = tmp_path_factory.mktemp("case")
            async with OpenAIServer([Reply(status=status, content="no")]) as server:
                (row,) = await rows_of(MakeAgent(server.client()), [double(1)], tmp_path)
                assert len(server.requests) == 1
            assert (row.outcome, row.attempts) == ("failed", 1)


# What the caller's function can do wrong


async def fails(executor: CodeExecutor) -> CodeActAgent:
    raise KeyError("no such thing")


def makes_no_agent(executor: CodeExecutor) -> str:
    return "agent"


@pytest.mark.parametrize(
    ("make", "error_class", "error"),
    [
        (fails, "KeyError", "'no such thing'"),
        (makes_no_agent, "UnusableAgentError", "make_agent has to return an agent or a team, not a str"),
    ],
)
async def test_function_that_fails_gives_a_failed_row(
    bubblewrap: None, make: Any, error_class: str, error: str
) -> None:
    (row,) = await rows_of(make, [double(1)])
    assert (row.outcome, row.error_class, row.error, row.attempts) == ("failed", error_class, error, 1)


async def test_agent_that_two_tasks_share_is_refused(bubblewrap: None) -> None:
    agents, refused = list[CodeActAgent](), threading.Event()

    def late(messages: list[dict[str, Any]]) -> str:
        assert refused.wait(40)  # the first task runs until the second one was refused
        return answer(messages)

    def note(event: BatchEvent) -> None:
        if isinstance(event, AttemptFailed):
            refused.set()

    async with OpenAIServer(late) as server:
        make = MakeAgent(server.client())

        def same(executor: CodeExecutor) -> CodeActAgent:
            agents.append(make(executor))
            return agents[0]

        rows = await rows_of(same, [double(1), double(2)], concurrency=2, on_event=note)
    assert sorted(row.outcome for row in rows) == ["completed", "failed"]
    (failed,) = [row for row in rows if row.outcome == "failed"]
    assert failed.error_class == "UnusableAgentError"


async def test_agent_without_an_answer_is_stopped(bubblewrap: None) -> None:
    (row,) = await rows_of(lambda executor: CodeActAgent(
        "coder", executor, model_client=scripted("```python\n1\n```", "I have no idea."),
        budget=Budget(max_steps=1),
    ), [double(1)])  # fmt: skip
    assert (row.outcome, row.answer, row.error_class) == ("stopped", "I have no idea.", "max_steps")


# The folder


# Limits


async def test_attempt_that_takes_too_long_is_ended(bubblewrap: None) -> None:
    async with OpenAIServer([Reply(silent=True)]) as server:
        (row,) = await rows_of(MakeAgent(server.client()), [double(1)], task_timeout=0.5)
    assert (row.outcome, row.error_class, row.attempts) == ("failed", "TaskTimeoutError", 1)
    assert row.error == "the attempt took longer than 0.5 s (task_timeout)"


async def test_batch_that_is_left_can_be_continued(server: OpenAIServer, make: MakeAgent, tmp_path: Path) -> None:
    """One that is cancelled, too: see test_cancellation.py."""
    tasks, before = [double(number) for number in range(4)], asyncio.all_tasks()
    async with aclosing(batch(make, tasks, tmp_path, concurrency=2)) as running:
        await anext(running)
    assert asyncio.all_tasks() == before
    done = {line["id"] for line in lines(tmp_path)}
    rows = await rows_of(make, tasks, tmp_path)
    assert {row.id for row in rows} == {task.id for task in tasks} - done
    assert sorted(line["answer"] for line in lines(tmp_path)) == ["0", "2", "4", "6"]


async def test_task_with_files_finds_them_in_its_workspace(bubblewrap: None, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")

    def reads(executor: CodeExecutor) -> CodeActAgent:
        code = "```python\nfinal_answer(open('in/numbers.csv').read())\n```"
        return CodeActAgent("coder", executor, model_client=scripted(code))

    (row,) = await rows_of(reads, [Task(id="a", task="Read.", files={"in/numbers.csv": str(tmp_path / "a.csv")})])
    assert (row.outcome, row.answer) == ("completed", "1,2\n")


async def test_bad_tasks_are_rows_and_the_others_are_run(server: OpenAIServer, make: MakeAgent, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    good = double(1).model_copy(update={"expected": 2}).model_dump_json(exclude_defaults=True)
    file.write_text(f'{good}\n{{"id": broken\n{good}\n')
    rows = [row async for row in batch(make, file, tmp_path / "out", repeat=2)]
    again = batch(make, file, tmp_path / "out", repeat=2)

    assert [row.outcome async for row in again] == ["invalid", "invalid"]  # they may have been corrected
    assert (again.counts.total, again.counts.done, again.counts.invalid, again.counts.passed) == (4, 4, 2, 2)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["rows"], summary["invalid"], summary["checked"], summary["passed"]) == (4, 2, 2, 2)
    assert sorted((row.id, row.repeat, row.outcome, row.passed) for row in rows if row.outcome != "invalid") == [
        ("double/1", 1, "completed", True), ("double/1", 2, "completed", True),
    ]  # fmt: skip
    bad = [row for row in rows if row.outcome == "invalid"]
    assert [(row.error_class, row.id, row.attempts) for row in bad] == [
        ("BadTask", "tasks.jsonl:2", 0), ("BadTask", "tasks.jsonl:3", 0),
    ]  # fmt: skip
    assert asked(server) == once(1) + once(1)


async def test_long_answer_is_checked_whole_and_shortened_in_the_row(bubblewrap: None, tmp_path: Path) -> None:
    def says_much(executor: CodeExecutor) -> CodeActAgent:
        return CodeActAgent("coder", executor, model_client=scripted("ü" * 1_000_000 + " 7"))

    (row,) = await rows_of(says_much, [Task(id="a", task="x", expected=7, check="number")], tmp_path)
    assert (row.outcome, row.passed) == ("completed", True)
    assert row.answer is not None
    kept, _, left_out = row.answer.partition("\n\n")
    assert (kept, left_out) == ("ü" * MAX_ANSWER, LEFT_OUT)
    assert load_rows(tmp_path) == [row]
    logged = [path.read_text() for path in (tmp_path / "runs").glob("*/files/*")]
    assert any("ü" * 1_000_000 + " 7" in each for each in logged)


async def test_rows_of_tasks_that_are_gone_are_part_of_the_total(make: MakeAgent, tmp_path: Path) -> None:
    """Else six of five tasks would be done at the end."""
    await rows_of(make, [double(1), double(2)], tmp_path, repeat=2)
    running = batch(make, [double(2), double(3)], tmp_path)
    async with aclosing(running) as rows:
        [row async for row in rows]
    assert (running.counts.done, running.counts.total) == (5, 5)
