"""Continuing a run whose process has ended."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from autogen_agentchat.base import TaskResult

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import (
    LogLocked,
    RunDivergedError,
    RunError,
    RunIsFinishedError,
    load_run,
    recorded,
    resume,
    resumed,
)
from autogen_codeact.runs.events import HostCallStarted
from autogen_codeact.runs.plan import RunNotResumableError
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.writer import LogWriter
from tests.cases import case
from tests.openai_server import OpenAIServer
from tests.runs.example_run import counted, counting_tool, expected, model
from tests.runs.support import cut, lines_of

STEPS = 2
RESUMED = {
    "type": "run_resumed",
    "seq": 10,
    "schema_version": 1,
    "boundary": 1,
    "process": {"pid": 1, "host": "h", "versions": {}},
}


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    """A model that answers by the conversation."""
    server = OpenAIServer(model(STEPS)).start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
async def close_clients(server: OpenAIServer) -> AsyncIterator[None]:
    """Close the connections of each test."""
    yield
    await server.close_clients()


def make_agent(executor: BubblewrapCommandLineCodeExecutor, server: OpenAIServer, calls: Path) -> CodeActAgent:
    """The agent of all runs here."""
    return CodeActAgent("coder", executor, model_client=server.client(), tools=[counting_tool(calls)])


@pytest.fixture(scope="module")
def whole_run(bubblewrap: None, server: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole")

    async def run() -> object:
        async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
            agent = make_agent(executor, server, folder / "calls")
            async with aclosing(recorded(agent, task="Triple.", path=folder / "run")) as items:
                last = [item async for item in items][-1]
        await server.close_clients()
        return last

    last = asyncio.run(run())
    assert isinstance(last, TaskResult)
    assert last.messages[-1].to_text() == expected(STEPS)
    return folder / "run"


def place(whole: Path, event: str, which: int = -1) -> int:
    """The number of lines up to an event, itself included."""
    return [n for n, line in enumerate(lines_of(whole), 1) if json.loads(line)["type"] == event][which]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_run_continues_after_each_line_of_its_log(whole_run: Path, server: OpenAIServer, tmp_path: Path) -> None:
    lines = lines_of(whole_run)
    for number in range(2, len(lines)):
        calls = tmp_path / f"calls-{number}"
        folder = cut(whole_run, tmp_path / f"run-{number}", number, lines[number][: len(lines[number]) // 2])
        before = [event for event in load_run(folder) if isinstance(event, HostCallStarted)]
        async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
            result = await resume(folder, agent=make_agent(executor, server, calls))
        assert result.messages[-1].to_text() == expected(STEPS), number
        assert lines_of(folder)[:number] == lines[:number]
        assert [event.arguments["number"] for event in before] + counted(calls) == [1, 2], number


async def test_code_under_way_is_told_with_its_calls_and_not_run_again(
    whole_run: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "host_call_started"))
    asked = len(server.requests)
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        result = await resume(folder, agent=make_agent(executor, server, tmp_path / "calls"))
    assert result.messages[-1].to_text() == expected(STEPS)
    assert counted(tmp_path / "calls") == []
    assert server.requests[asked]["messages"][-1]["content"] == (
        "It is not known how far this code came: the process of the agent ended while it was running. "
        "It is not run again by itself. Look at what is there, files for example, before you go on.\nIt printed nothing.\n\n"
        "The session's memory was put back to before this code: variables and imports from earlier code are there, those of this "
        "code are not.\n"
        "Calls to host tools that this code made before it ended; what is done is done, so don't repeat it:\n"
        "- triple(number=2) was under way when it was stopped; it may have been done or not"
    )


async def test_only_new_messages_are_yielded_and_the_result_has_all(
    whole_run: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "block_finished", 0))
    rebuilt: list[int] = []
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        agent = make_agent(executor, server, tmp_path / "calls")
        items = [item async for item in resumed(folder, agent=agent, on_rebuild=rebuilt.append)]
    *new, result = items
    assert [type(item).__name__ for item in new] == [
        "CodeExecutionEvent",
        "CodeGenerationEvent",
        "CodeExecutionEvent",
        "TextMessage",
    ]
    assert isinstance(result, TaskResult)
    assert [type(item).__name__ for item in result.messages[:2]] == ["TextMessage", "CodeGenerationEvent"]
    assert rebuilt == [1]
    assert counted(tmp_path / "calls") == [2]


async def test_session_that_is_not_rebuilt_is_empty_and_the_model_is_told(
    whole_run: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "message", 2))
    asked = len(server.requests)
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        agent = make_agent(executor, server, tmp_path / "calls")
        result = await resume(folder, agent=agent, rebuild=False)
        value = (await executor.sandbox.run("'values' in globals()")).value
    assert server.requests[asked]["messages"][-1]["content"] == (
        "The session could not be rebuilt and is empty: the run was continued without rebuilding it. Variables and functions of "
        "its earlier code are lost."
    )
    assert value is False
    assert "NameError" in result.messages[-1].to_text()
    assert counted(tmp_path / "calls") == [2]


async def test_agent_is_made_from_the_log_with_the_functions_that_are_passed(
    whole_run: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "block_finished", 0))
    with pytest.raises(RunNotResumableError) as refused:
        await resume(folder, api_key="none-needed", trust=True)
    assert str(refused.value) == (
        f"{folder} can't be continued without its host tools triple: functions are not in the log. Pass them to "
        "the agent, or as tools=[…] to autogen_codeact.runs.resume."
    )
    tool = counting_tool(tmp_path / "calls")
    result = await resume(folder, tools=[tool], api_key="none-needed", trust=True)
    assert result.messages[-1].to_text() == expected(STEPS)
    assert counted(tmp_path / "calls") == [2]
    with pytest.raises(RunIsFinishedError):
        await resume(folder, tools=[tool], api_key="none-needed", trust=True)


async def refusal(folder: Path, agent: CodeActAgent | None = None) -> RunError:
    """Why a run is not continued; its log stays as it is."""
    before = (folder / "events.jsonl").read_bytes()
    with pytest.raises(RunError) as refused:
        await resume(folder, agent=agent)
    assert (folder / "events.jsonl").read_bytes() == before
    return refused.value


async def test_log_that_can_not_be_trusted_is_refused(
    whole_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for line, kind, message in [
        (
            {"type": "teleported", "seq": 10, "schema_version": 1},
            RunNotResumableError,
            "its log is damaged in line 10 (this version does not know events of type teleported)",
        ),
        ({"type": "message", "seq": 10, "schema_version": 99}, RunError, "Update autogen-codeact to read it."),
        ({"type": "boundary", "seq": 10, "schema_version": 1}, RunNotResumableError, "its log is damaged in line 10"),
        (
            {"type": "message", "seq": 12, "schema_version": 1},
            RunNotResumableError,
            "events are missing before this line",
        ),
        (
            {**RESUMED, "journals": [{"executor": 0, "session": "s", "keep": 10**12}]},
            RunNotResumableError,
            "its log is damaged in line 10 (this is not an event of type run_resumed: run_resumed.journals.0.keep: Input should",
        ),
        (
            {**RESUMED, "journals": [{"executor": 0, "session": "s", "keep": 0, "added": [{"code": "x"}]}]},
            RunNotResumableError,
            "its log is damaged in line 10 (language: Field required)",
        ),
        (
            {"type": "log_stopped", "seq": 10, "schema_version": 1, "reason": "the disk is full"},
            RunNotResumableError,
            "the run went on without its log (the disk is full)",
        ),
    ]:
        with case(line, kind, message):
            tmp_path = tmp_path_factory.mktemp("case")
            now = {"time": "2026-01-01T00:00:00Z", "monotonic": 1.0}
            folder = cut(whole_run, tmp_path / "run", 9, json.dumps({**line, **now}).encode() + b"\n")
            error = await refusal(folder)
            assert isinstance(error, kind)
            assert message in str(error)


async def test_run_is_continued_by_one_process_at_a_time(whole_run: Path, server: OpenAIServer, tmp_path: Path) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "block_finished", 0))
    size = (folder / "events.jsonl").stat().st_size
    other = await LogWriter.extend(folder, Redaction(), last=1, size=size)
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    agent = make_agent(executor, server, tmp_path / "calls")
    try:
        with pytest.raises(LogLocked):
            await resume(folder, agent=agent)
    finally:
        await other.close()
    assert not executor.starts


async def test_other_agent_or_other_code_is_refused(whole_run: Path, server: OpenAIServer, tmp_path: Path) -> None:
    folder = cut(whole_run, tmp_path / "run", place(whole_run, "block_finished", 0))
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        other = CodeActAgent("someone", executor, model_client=server.client())
        assert str(await refusal(folder, other)) == (
            f"{folder} is a run of coder, not of someone: pass the same agent as agent=."
        )
        without = CodeActAgent("coder", executor, model_client=server.client())
    assert "without its host tools triple: functions are not in the log" in str(await refusal(folder, without))
    lines = lines_of(folder)
    at = next(n for n, line in enumerate(lines) if b'"block_started"' in line)
    lines[at] = lines[at].replace(b"# step 1", b"# step 7")
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        with pytest.raises(RunDivergedError) as refused:
            await resume(folder, agent=make_agent(executor, server, tmp_path / "calls"))
    assert str(refused.value) == (
        "The run can't be continued: 'coder' wanted to run other code than in the log, so its code or its options are not what "
        "they were. Continue it with the same program, or begin a new run."
    )
    assert counted(tmp_path / "calls") == []


async def test_tool_of_the_executor_is_named_in_the_log_and_in_the_error_without_it(
    whole_run: Path, server: OpenAIServer, tmp_path: Path
) -> None:
    tool = counting_tool(tmp_path / "calls")
    path = tmp_path / "run"
    async with BubblewrapCommandLineCodeExecutor(mode="session", tools=[tool]) as executor:
        agent = CodeActAgent("coder", executor, model_client=server.client())
        async with aclosing(recorded(agent, task="Triple.", path=path)) as items:
            async for item in items:
                if not isinstance(item, TaskResult) and item.source == "coder":
                    break
    assert [info.tools for info in load_run(path).started.agents] == [["triple"]]
    bare = CodeActAgent("coder", BubblewrapCommandLineCodeExecutor(mode="session"), model_client=server.client())
    assert "without its host tools triple: functions are not in the log" in str(await refusal(path, bare))
    with pytest.raises(RunNotResumableError, match="without its host tools triple: functions are not in the log"):
        await resume(path, api_key="none-needed")
    result = await resume(path, tools=[tool], api_key="none-needed")
    assert result.messages[-1].to_text() == expected(STEPS)
