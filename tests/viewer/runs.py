"""Recorded runs for tests of the viewer: real agents in real sandboxes, with models that give fixed answers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ToolApproval
from autogen_codeact.runs import recorded
from autogen_codeact.runs.events import BlockFinished, BlockStarted, CodeText
from autogen_codeact.runs.results import ResultRecord, StoredFile
from autogen_codeact.teams import Handoff, Team

SHOW = """\
class Table:
    def _repr_html_(self): return "<table><tr><td>Oslo</td><td>7</td></tr></table>"
    def __repr__(self): return "Table(Oslo, 7)"

print("two cities")
display(Table())
circle = "<svg xmlns='http://www.w3.org/2000/svg'><circle r='5'/></svg>"
display({"image/svg+xml": circle, "text/plain": "a circle"}, raw=True)
with open("cities.csv", "w") as file:
    file.write("city,degrees\\nOslo,7\\nRome,19\\n")
"""
CHANGE = """\
degrees = look_up("Oslo")
with open("cities.csv", "w") as file:
    file.write(f"city,degrees\\nOslo,{degrees}\\nRome,19\\n")
with open("data.bin", "wb") as file:
    file.write(bytes(range(256)))
try:
    look_up("Atlantis")
except KeyError as error:
    print("no", error)
try:
    delete("cities.csv")
except Exception as error:
    print(type(error).__name__, error)
degrees
"""
REMOVE = "import os\nos.remove('data.bin')\nprint(degrees)"
LOOP = "print('looping', flush=True)\nimport time\ntime.sleep(60)"
FAILS = "import sys\nprint('boom')\nsys.exit(3)"
WORKS = "print(42)"


def block(number: int = 1, code: str = "1", **result: Any) -> list[BlockStarted | BlockFinished]:
    """Return the events of a block with this result."""
    found = ResultRecord(**{"kind": "sandbox", "exit_code": 0, "output": "", **result})
    return [
        BlockStarted(agent="coder", number=number, blocks=[CodeText(code=code, language="python")]),
        BlockFinished(agent="coder", number=number, result=found),
    ]


def store(folder: Path, content: bytes) -> StoredFile:
    """Store a file in the folder of a run."""
    name = hashlib.sha256(content).hexdigest()
    (folder / "files").mkdir(parents=True, exist_ok=True)
    (folder / "files" / name).write_bytes(content)
    return StoredFile(sha256=name, size=len(content))


def look_up(city: str) -> int:
    """Return the temperature of a city."""
    return {"Oslo": 8}[city]


def delete(name: str) -> None:
    """Delete a file."""


async def approve(request: Any) -> ToolApproval:
    """Allow every call but those of `delete`."""
    return ToolApproval(request.name != "delete", "files are kept")


def said(content: str, *, thought: str | None = None, read: int = 100) -> CreateResult:
    """Return an answer with its usage."""
    usage = RequestUsage(prompt_tokens=read, completion_tokens=len(content.split()))
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False, thought=thought)


def model(*answers: str | CreateResult) -> ReplayChatCompletionClient:
    """Return a model that gives these answers."""
    info = ModelInfo(vision=False, function_calling=False, json_output=True, family="unknown", structured_output=True)
    return ReplayChatCompletionClient([a if isinstance(a, CreateResult) else said(a) for a in answers], info)


def python(code: str, words: str = "") -> str:
    """Return a message with code."""
    return f"{words}\n```python\n{code}\n```\n"


async def record_rich_run(folder: Path, **options: Any) -> Path:
    """Record a run of a team with all kinds of steps, and return its folder."""
    actor_model = model(
        said(python(SHOW, "I begin with a **table**."), thought="Two cities are enough."),
        python(CHANGE, "Now the host knows better."),
        python(REMOVE),
        python(LOOP),
        python("degrees"),
        python("transfer_to_checker('Check the table, please.')"),
    )
    checker_model = model(
        python(FAILS),
        json.dumps({"reason": "It ended with exit code 3.", "retry": True}),
        python(WORKS),
        "All is well. DONE",
    )
    async with (
        BubblewrapCommandLineCodeExecutor(mode="session", timeout=5, **options) as session,
        BubblewrapCommandLineCodeExecutor(timeout=20) as process,
    ):
        actor = CodeActAgent(
            "actor",
            session,
            model_client=actor_model,
            tools=[look_up, delete],
            approve_tool=approve,
            handoffs=["checker"],
            model_client_stream=True,
            stream_output=True,
        )
        checker = CodeExecutorAgent("checker", process, model_client=checker_model, max_retries_on_error=2)
        end = TextMentionTermination("DONE") | MaxMessageTermination(20)
        team = Team([actor, checker], speakers=Handoff(), termination_condition=end)
        async for _ in recorded(team, task="Make a table of two cities, and check it.", path=folder):
            pass
    return folder
