"""Words and helpers for tests of rebuilt sessions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import from_agent, python
from tests.agents.support import received_by, scripted

Make = Callable[..., Awaitable[SandboxCodeExecutor]]
REBUILT = (
    "The session was rebuilt: its {} run again in a fresh sandbox, without network and on a copy of the files. Host tools "
    "were not called, and what the code had left running (threads, subprocesses) was ended."
)
SAME = f"{REBUILT} All went as before."
DIFFERENT = f"{REBUILT}\nIt differs from what it was:\n"
NOT_THERE = "\nThe session has no variables or functions from blocks that were not rebuilt."


async def run_turn(executor: SandboxCodeExecutor, state: Any, *code: str, **options: Any) -> tuple[Any, str, list[str]]:
    """A turn of an agent that has loaded a state.

    Returns:
        The state after it, what the model was told of the rebuilding, and what the blocks printed.
    """
    client = scripted(*map(python, code), "Done.")
    agent = CodeActAgent("actor", executor, model_client=client, **options)
    if state is not None:
        await agent.load_state(state)
    result = await agent.run(task="Go.")
    words = [m for m in result.messages if isinstance(m, CodeGenerationEvent) and "replayed" in m.metadata]
    if words and words[0].content != SAME.format("1 block was"):
        telling = received_by(client)[0][-1] == from_agent(words[0].content)
        assert telling is not words[0].content.endswith("All went as before.")
    printed = [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)]
    return json.loads(json.dumps(await agent.save_state())), words[0].content if words else "", printed


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


DOUBLE = """
rows = [int(line) for line in open("prices.csv")]
with open("prices.csv", "w") as file:
    file.writelines(f"{2 * row}\\n" for row in rows)
"""
