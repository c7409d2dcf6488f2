"""Continuing a run whose process has ended."""

import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from autogen_agentchat.base import TaskResult

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import load_run, recorded, resumed
from autogen_codeact.runs.events import HostCallStarted
from tests.openai_server import OpenAIServer
from tests.runs.steps12 import counted, counting_tool, expected, model

STEPS = 2


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """A model that answers by the conversation."""
    async with OpenAIServer(model(STEPS)) as server:
        yield server


def make_agent(executor: BubblewrapCommandLineCodeExecutor, server: OpenAIServer, calls: Path) -> CodeActAgent:
    """The agent of all runs here."""
    return CodeActAgent("coder", executor, model_client=server.client(), tools=[counting_tool(calls)])


@pytest.fixture
async def whole_run(bubblewrap: None, server: OpenAIServer, tmp_path: Path) -> Path:
    """The folder of a run that was not interrupted."""
    async with BubblewrapCommandLineCodeExecutor(mode="session", work_dir=tmp_path / "work") as executor:
        agent = make_agent(executor, server, tmp_path / "calls")
        async with aclosing(recorded(agent, task="Triple.", path=tmp_path / "run")) as items:
            last = [item async for item in items][-1]
    assert isinstance(last, TaskResult)
    assert last.messages[-1].to_text() == expected(STEPS)
    return tmp_path / "run"


@pytest.mark.timeout(300)
async def test_run_continues_after_each_line_of_its_log(whole_run: Path, server: OpenAIServer, tmp_path: Path) -> None:
    lines = (whole_run / "events.jsonl").read_bytes().splitlines(keepends=True)
    for number in range(2, len(lines)):
        folder, calls = tmp_path / f"run-{number}", tmp_path / f"calls-{number}"
        shutil.copytree(whole_run, folder)
        torn = lines[number][: len(lines[number]) // 2]
        (folder / "events.jsonl").write_bytes(b"".join(lines[:number]) + torn)
        before = [event for event in load_run(folder) if isinstance(event, HostCallStarted)]
        async with BubblewrapCommandLineCodeExecutor(mode="session", work_dir=tmp_path / "work") as executor:
            agent = make_agent(executor, server, calls)
            items = [item async for item in resumed(folder, agent=agent)]
        assert isinstance(items[-1], TaskResult)
        assert items[-1].messages[-1].to_text() == expected(STEPS), number
        after = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
        assert after[:number] == lines[:number]
        assert [event.arguments["number"] for event in before] + counted(calls) == [1, 2], number
