"""Continuing runs in which a function chooses among attempts: the chosen one is the session, wherever the run was cut."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded, resumed
from autogen_codeact.runs.events import BlockFinished, BlockStarted
from tests.agents.codeact import python
from tests.openai_server import OpenAIServer
from tests.runs.support import cut, events_of, lines_of
from tests.sandbox import reused


async def test_run_whose_attempts_were_cut_at_any_event_goes_on_with_the_chosen_one(
    bubblewrap: None, tmp_path: Path
) -> None:
    asked = 0

    def answer(messages: list[dict[str, Any]]) -> str:
        nonlocal asked
        asked += 1
        last = str(messages[-1]["content"])
        if "It is not known how far" in last or all(message["role"] != "assistant" for message in messages):
            return python(f"x = {asked}; print(x)")
        return "Done." if "again " in last else python("print('again', x)")

    async with OpenAIServer(answer) as server:

        async def finish(folder: Path, items_of: Any) -> list[str]:
            async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session") as executor:
                options: dict[str, Any] = {"attempts": 2, "choose": lambda tried: 1, "describe_environment": False}
                agent = CodeActAgent("coder", executor, model_client=server.client(), **options)
                async with aclosing(items_of(folder, agent)) as items:
                    last = [item async for item in items][-1]
            await server.close_clients()
            assert isinstance(last, TaskResult)
            assert last.messages[-1].to_text() == "Done."  # type: ignore[union-attr]
            return [event.result.output.strip() for event in last.messages if isinstance(event, CodeExecutionEvent)]

        whole = tmp_path / "whole"
        (first, again) = await finish(whole, lambda folder, agent: recorded(agent, task="Go.", path=folder))
        assert again == f"again {first}"
        started = [event.attempt for event in events_of(whole) if isinstance(event, BlockStarted)]
        undone = [event.undone for event in events_of(whole) if isinstance(event, BlockFinished)]
        assert started == [1, 2, 1, 1, 1]  # equal answers count once
        assert undone == [True, True, False, True, False]
        for number in range(2, len(lines_of(whole))):
            folder = cut(whole, tmp_path / str(number), number)
            *_, first, again = await finish(folder, lambda folder, agent: resumed(folder, agent=agent))
            assert again == f"again {first}", number
