"""What running code writes, as it writes it."""

from itertools import groupby
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.support import scripted

SLOW = """\
```python
import os, time
print("one", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("two")
```
"""


def is_output(item: Any) -> bool:
    return isinstance(item, ModelClientStreamingChunkEvent) and item.metadata == {"chunk_of": "execution"}


async def test_output_comes_while_the_code_runs(session: SandboxCodeExecutor) -> None:
    agent = CodeExecutorAgent("coder", session, model_client=scripted(SLOW, "Two."), stream_output=True)
    seen: list[Any] = []
    async for item in agent.run_stream(task="Count."):
        seen.append(item)
        if is_output(item) and "one" in item.content:
            (session.work_dir / "go").touch()  # the code waits for it, so it runs still
            await session.upload(session.work_dir / "go")

    kinds = [kind for kind, _ in groupby(type(item) for item in seen)]  # a line may come in pieces
    assert kinds == [
        TextMessage,
        CodeGenerationEvent,
        ModelClientStreamingChunkEvent,
        CodeExecutionEvent,
        TextMessage,
        TaskResult,
    ]
    assert "".join(item.content for item in seen if is_output(item)) == "one\ntwo\n"
    assert {item.source for item in seen if is_output(item)} == {"coder"}
    assert seen[-1].messages == [item for item in seen[:-1] if not is_output(item)]


async def test_output_is_not_shown_unasked(session: SandboxCodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", session)
    shown = [item async for item in agent.on_messages_stream([user("```python\nprint(1)\n```")], CancellationToken())]
    assert len(shown) == 1


async def test_executor_without_streaming_works(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", executor, stream_output=True)
    result = await agent.run(task="```python\nprint(1)\n```")
    assert result.messages[-1].to_text() == "1\n"


def user(words: str) -> TextMessage:
    return TextMessage(content=words, source="user")
