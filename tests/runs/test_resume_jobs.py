"""Continuing runs whose code has started background jobs: what was told comes from the log, and the jobs are gone."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

from autogen_agentchat.base import TaskResult

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded, resumed
from autogen_codeact.runs.events import ValueLogged
from codeact_sandbox.background import LOST
from tests.agents.codeact import python
from tests.openai_server import OpenAIServer
from tests.runs.support import cut, events_of, lines_of
from tests.sandbox import reused

START = python("job = run_in_background('echo one; sleep 3917')\nwhile 'one' not in job.output(): job.wait(0.05)")
GONE = python("try: print(job.wait())\nexcept Exception as error: print(error)")


def answer(messages: list[dict[str, Any]]) -> str:
    """Start a job, answer, and answer again when told that it runs; look at the job if it is gone."""
    said = [message for message in messages if message["role"] == "assistant"]
    last = str(messages[-1]["content"])
    if not said or "It is not known how far" in last:
        return START
    return GONE if LOST in last and len(said) < 5 else "Done."


async def test_run_with_jobs_that_is_cut_at_any_event_goes_on(bubblewrap: None, tmp_path: Path) -> None:
    async with OpenAIServer(answer) as server:

        async def finish(folder: Path, items_of: Any, **options: Any) -> TaskResult:
            async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session") as executor:
                agent = CodeActAgent(
                    "coder", executor, model_client=server.client(), background=True, describe_environment=False
                )
                async with aclosing(items_of(folder, agent)) as items:
                    last = [item async for item in items][-1]
            await server.close_clients()
            assert isinstance(last, TaskResult)
            return last

        whole = tmp_path / "whole"
        last = await finish(whole, lambda folder, agent: recorded(agent, task="Go.", path=folder))
        assert last.messages[-1].to_text() == "Done."  # type: ignore[union-attr]
        told = [event.value for event in events_of(whole) if isinstance(event, ValueLogged) and event.kind == "jobs"]
        label = "job 1 (echo one; sleep 3917)"
        assert told[0] == {"text": f"[{label} runs; its new output:]\none", "running": [label]}
        assert [each["running"] for each in told] == [[label]] * len(told)
        lost = 0
        for number in range(2, len(lines_of(whole))):
            folder = cut(whole, tmp_path / str(number), number)
            last = await finish(folder, lambda folder, agent: resumed(folder, agent=agent))
            assert last.messages[-1].to_text() == "Done.", number  # type: ignore[union-attr]
            texts = [str(each.value) for each in events_of(folder) if isinstance(each, ValueLogged)]
            lost += any(LOST in text for text in texts)
        assert lost
