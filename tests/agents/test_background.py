"""Jobs that code starts in the background: what the model is told of them, and that none is left."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import SystemMessage

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.codeact_prompt import BACKGROUND
from autogen_codeact.agents.jobs import JOBS_RUN
from tests.agents.codeact import (
    answer_message,
    comparable,
    execution_event,
    from_agent,
    generation_event,
    model,
    python,
    user,
)
from tests.agents.conftest import started
from tests.agents.support import received_by, scripted

LEFT = "cat /proc/*/cmdline | grep -ac 'sleep.391[7]'"


def agent_of(executor: CodeExecutor, *answers: str, **options: Any) -> tuple[CodeActAgent, Any]:
    client = scripted(*answers)
    options = {"describe_environment": False, "background": True, **options}
    return CodeActAgent("actor", executor, model_client=client, **options), client


def outputs(messages: Any) -> list[str]:
    return [event.result.output for event in messages if isinstance(event, CodeExecutionEvent)]


def timeless(messages: Any) -> list[dict[str, Any]]:
    """Messages without what differs from run to run: also calls, whose number and names do."""
    for event in messages:
        if isinstance(event, CodeExecutionEvent):
            event.result.tool_calls = ()  # type: ignore[attr-defined]
            event.metadata.pop("tool_calls", None)
    return comparable(messages)[1:]


def executed(step: int, output: str, jobs: str | None = None, **fields: Any) -> dict[str, Any]:
    event = execution_event(step, output, **fields)
    if jobs is not None:
        event["metadata"]["jobs"] = jobs
    return event


async def test_job_goes_on_while_the_model_thinks_and_its_output_comes_with_the_next_results(backend: str) -> None:
    command = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3"
    begin = f"job = run_in_background({command!r})\nwhile 'one' not in job.output(): pass\njob"
    end = "open('go', 'w').close(); print(job.wait(20)); x = job.output()"
    async with started(backend) as executor:
        agent, client = agent_of(executor, python(begin), "Done.", python(end), python("x"), "Done.")
        result = await agent.run(task="Go.")
        system = SystemMessage(content=agent._conversation.system_message)  # type: ignore[union-attr]
    assert BACKGROUND in str(system.content)
    label = f"job 1 ({command})"
    news = [f"[{label} runs; its new output:]\none", f"[{label} has ended with exit code 3; its new output:]\ntwo"]
    told = JOBS_RUN.format(news=f"[{label} runs; no new output]")
    for event in result.messages:
        if isinstance(event, CodeExecutionEvent):
            event.result.artifacts = ()  # type: ignore[attr-defined]
    shown = f"<job 1: {command}>"
    assert timeless(result.messages) == [
        generation_event(1, python(begin), begin + "\n"),
        executed(1, shown + "\n", news[0], value_repr=shown),
        {**generation_event(1, "Done."), "metadata": {"steps": "2", "sent_back": told}},
        generation_event(3, python(end), end + "\n"),
        executed(3, "3\n", news[1]),
        generation_event(4, python("x"), "x\n"),
        executed(4, "'one\\ntwo\\n'\n", value_repr="'one\\ntwo\\n'"),
        answer_message("Done.", steps="5"),
    ]
    last = received_by(client)[-1]
    assert last[:6] == [
        *(system, user("Go."), model(python(begin)), from_agent(f"{shown}\n\n{news[0]}")),
        *(model("Done."), from_agent(told)),
    ]
    assert str(last[7].content).startswith("3\n")
    assert str(last[7].content).endswith(news[1])
    assert last[8:] == [model(python("x")), from_agent("'one\\ntwo\\n'\n")]


async def test_jobs_end_with_the_answer_that_is_given_again_with_a_limit_and_when_the_turn_is_cancelled(
    backend: str,
) -> None:
    start = python("job = run_in_background(['sleep', '3917'])")
    async with started(backend) as executor:
        agent, _ = agent_of(executor, start, python("final_answer(1)"), "2", start, "3", max_steps=3)
        result = await agent.run(task="Go.")
        assert (result.messages[-1].to_text(), outputs(result.messages)) == ("2", ["", ""])  # type: ignore[union-attr]
        assert (await executor.exec(LEFT)).stdout == "0\n"
        agent._budget = agent._budget.model_copy(update={"max_steps": 1})
        result = await agent.run(task="Go.")
        assert result.messages[-1].metadata["stopped"] == "max_steps"
        assert (await executor.exec(LEFT)).stdout == "0\n"
        token, (agent, _) = CancellationToken(), agent_of(executor, start, python("while True: pass"))

        async def run() -> None:
            async for event in agent.run_stream(task="Go.", cancellation_token=token):
                if isinstance(event, CodeExecutionEvent):
                    asyncio.get_running_loop().call_later(0.2, token.cancel)

        with pytest.raises(asyncio.CancelledError):
            await run()
        assert (await executor.exec(LEFT)).stdout == "0\n"
        gone = await executor.run("try: job.wait()\nexcept Exception as error: print(type(error).__name__, error)")
    assert "nobody here starts jobs" in gone.output or "the job has ended" in gone.output


async def test_cell_with_bg_lists_of_words_stop_and_the_current_folder(backend: str) -> None:
    code = (
        "%%bash --bg --proc server\nread line < /dev/null; echo $0; pwd; sleep 3917",
        "import os; os.makedirs('sub'); os.chdir('sub')\njob = run_in_background(['sh', '-c', 'pwd; exit 4'])\n"
        "print(job.wait(), job.output(), job.exit_code, server.exit_code)",
        "while 'workspace' not in server.output(): pass\nprint(server.stop(), server.exit_code, server.output())",
    )
    async with started(backend) as executor:
        agent, _ = agent_of(executor, *map(python, code), "Done.")
        result = await agent.run(task="Go.")
    assert outputs(result.messages) == [
        "<job 1: %%bash>\n",
        "4 /workspace/sub\n 4 None\n",
        "137 137 bash\n/workspace\n\n",
    ]


async def test_bad_calls_and_executors_without_jobs(bubblewrap: None, executor: CodeExecutor, tmp_path: Path) -> None:
    calls = (
        "{}",
        "{'op': 'start'}",
        "{'op': 'start', 'command': [], 'cwd': '/'}",
        "{'op': 'start', 'command': ' ', 'cwd': '/'}",
        "{'op': 'start', 'command': 'true', 'cwd': '/none'}",
        "{'op': 'start', 'command': [1, 2], 'cwd': '/'}",
        "{'op': 'start', 'command': {'a': 1}, 'cwd': '/'}",
        "{'op': 'wait', 'job': 'x', 'seconds': float('nan')}",
        "{'op': 'stop', 'job': '../1'}",
    )
    attempt = (
        "try: host_tools._call('run_in_background', {}); print('made')\nexcept Exception as e: print(type(e).__name__)"
    )
    code = "import host_tools\n" + "\n".join(map(attempt.format, calls))
    async with started("bubblewrap") as session:
        agent, _ = agent_of(session, python(code), "Done.")
        result = await agent.run(task="Go.")
    kinds = "TypeError\n" * 4 + "ToolError\n" + "TypeError\n" * 2 + "ValueError\n" * 2
    assert outputs(result.messages)[0] == kinds
    with pytest.raises(ValueError, match="can't call host tools"):
        agent_of(executor, "x")
