"""A program that begins or continues a run, and kills itself when the log gets a certain event.

It approves what the run waits for.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent, TaskResult
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.conditions import TextMentionTermination
from autogen_core.models import ChatCompletionClient, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.tools.later import Later
from autogen_codeact.runs import RunWaiting, recorded, resumed
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.teams import Team
from tests.runs.example_run import counting_tool


def die_at(point: str) -> None:
    """Have the process killed when the log's writer comes to an event, before, in the middle of, or after its line."""
    when, kind = point.split(":")
    append = LogWriter._append

    def append_and_die(self: LogWriter, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            here = json.loads(line)["type"] == kind
            if here and when != "after":
                append(self, line[: len(line) // 2 if when == "torn" else 0])
                os.kill(os.getpid(), signal.SIGKILL)
            append(self, line)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

    LogWriter._append = append_and_die  # type: ignore[method-assign]


def make_client(server: str) -> ChatCompletionClient:
    """AutoGen's own client for a server on loopback."""
    info = ModelInfo(vision=False, function_calling=False, json_output=True, family="unknown", structured_output=True)
    return OpenAIChatCompletionClient(
        model="scripted", base_url=server, api_key="none-needed", max_retries=0, model_info=info
    )


def make(kind: str, executor: SandboxCodeExecutor, server: str, calls: Path) -> ChatAgent | BaseTeam:
    """One agent, or a team of three that share a session."""
    tool: Any = counting_tool(calls)
    more: dict[str, Any] = {"approval_func": Later(), "approve_tool": Later()} if kind == "later" else {}

    def agent(name: str) -> CodeActAgent:
        client = make_client(server)
        return CodeActAgent(
            name,
            executor,
            model_client=client,
            tools=[tool],
            describe_environment=False,
            budget=Budget(max_steps=99),
            **more,
        )

    if kind != "team":
        return agent("coder")
    return Team(
        [agent("ann"), agent("bob"), agent("cid")], termination_condition=TextMentionTermination("The values are")
    )


async def main(folder: Path, server: str, backend: str, kind: str) -> None:
    """Begin or continue the run."""
    executors: dict[str, Any] = {
        "bubblewrap": BubblewrapCommandLineCodeExecutor,
        "docker": DockerCommandLineCodeExecutor,
    }
    async with executors[backend](mode="session", work_dir=folder.parent / "work") as executor:
        target = make(kind, executor, server, folder.parent / "calls")
        begun = (folder / "events.jsonl").exists() and b"boundary" in (folder / "events.jsonl").read_bytes()
        open_ones = make_plan(folder).open_questions if begun else []
        decisions = {each.asked.question: True for each in open_ones}
        stream = (
            resumed(folder, agent=target, decisions=decisions)
            if begun
            else recorded(target, task="Triple.", path=folder)
        )
        try:
            async with aclosing(stream) as items:
                last = [item async for item in items][-1]
        except RunWaiting:
            sys.stdout.write("waiting\n")
            return
    assert isinstance(last, TaskResult)
    sys.stdout.write(last.messages[-1].to_text() + "\n")


def begin() -> None:
    """Do what the arguments say: the run's folder, the model's server, the sandbox, the kind of run, and where to die.

    The last one is `before`, `torn` or `after`, a colon, and the type of an event. The answer is printed.
    """
    folder, server, backend, kind, *point = sys.argv[1:]
    for each in point:
        die_at(each)
    asyncio.run(main(Path(folder), server, backend, kind))
