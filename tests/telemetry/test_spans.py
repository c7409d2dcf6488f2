"""The exact spans of agents, retries, timeouts and teams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import CodeGenerationEvent
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ToolApproval, ToolLimits
from autogen_codeact.teams import Team
from autogen_codeact.telemetry import instrument
from codeact_sandbox import Sandbox
from tests.agents.codeact import python
from tests.agents.support import FAILS, WORKS, decision, model_answer, scripted
from tests.sandbox.pool.pooled import until

from .trees import Exported, attributes

pytestmark = pytest.mark.usefixtures("bubblewrap")


def look(name: str) -> str:
    """Look something up; opens a span of its own."""
    with trace.get_tracer("test").start_as_current_span(f"database {name}"):
        return name.upper()


BEGUN: list[asyncio.Event] = []


async def wait() -> None:
    """Wait."""
    BEGUN[-1].set()
    await asyncio.sleep(60)


async def broken() -> None:
    """Raise."""
    raise LookupError("the secret is 12345")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[BubblewrapCommandLineCodeExecutor]:
    async with BubblewrapCommandLineCodeExecutor(mode="session", tools=[look, broken, wait]) as executor:
        yield executor


Executor = BubblewrapCommandLineCodeExecutor
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "replay",
    "gen_ai.request.stream": False,
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 0,
    "gen_ai.usage.output_tokens": 1,
}


def block(number: int, **more: Any) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "execute_code",
        "gen_ai.tool.type": "function",
        "codeact.language": "python",
        "codeact.block": number,
        "process.exit.code": 0,
        "codeact.outcome": "ok",
        "codeact.state": "kept",
        **more,
    }


async def test_spans_of_an_agent_whose_code_calls_host_tools(executor: Executor, exported: Exported) -> None:
    code = "x = look('a')\ntry:\n    broken()\nexcept LookupError:\n    pass\nprint(x)"
    agent = CodeActAgent("actor", executor, model_client=scripted(python(code), "It is A."), stream_output=True)
    with instrument(agent):
        await agent.run(task="Look it up.")
    assert exported.tree() == [
        "invoke_agent actor",
        "  chat",
        "  execute_tool execute_code",
        "    execute_tool look",
        "      database a",
        "    execute_tool broken !LookupError",
        "  chat",
    ]
    spans = exported.spans
    assert attributes(spans[1]) == CHAT
    assert attributes(exported.one("execute_tool execute_code")) == block(executor.sandbox.blocks)
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
    looked, failed = exported.one("execute_tool look"), exported.one("execute_tool broken")
    assert attributes(looked) == {**tool, "gen_ai.tool.name": "look", "codeact.outcome": "ok"}
    assert attributes(failed) == {
        **tool,
        "gen_ai.tool.name": "broken",
        "codeact.outcome": "error",
        "error.type": "LookupError",
    }
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert len({span.context.trace_id for span in spans}) == 1


async def test_nothing_is_reported_after_the_end(executor: Executor, exported: Exported) -> None:
    client = scripted(python("look('a')"), "A.", "B.")
    agent = CodeActAgent("actor", executor, model_client=client)
    instrumentation = instrument(agent, executor)
    await agent.run(task="Go.")
    assert [line.strip() for line in exported.tree()].count("execute_tool execute_code") == 1
    instrumentation.uninstrument()
    instrumentation.uninstrument()
    exported.exporter.clear()
    await agent.run(task="Again.")
    assert exported.tree() == ["invoke_agent actor"]


async def test_spans_of_a_retry(executor: Executor, exported: Exported) -> None:
    answers = FAILS, decision(True), WORKS, "It is 42."
    agent = CodeExecutorAgent("coder", executor, model_client=scripted(*answers), max_retries_on_error=1)
    with instrument(agent):
        await agent.run(task="Print 42.")
    assert exported.tree() == [
        "invoke_agent coder",
        "  chat",
        "  execute_tool execute_code !nonzero_exit",
        "  chat",
        "  chat",
        "  execute_tool execute_code",
        "  chat",
    ]
    first, second = (span for span in exported.spans if span.name == "execute_tool execute_code")
    failed = {"process.exit.code": 3, "codeact.outcome": "error", "error.type": "nonzero_exit"}
    assert attributes(first) == block(executor.sandbox.blocks - 1, **failed)
    assert attributes(second) == block(executor.sandbox.blocks)


@pytest.mark.parametrize("stream", [False, True])
async def test_spans_of_a_team_with_a_nested_team(executor: Executor, exported: Exported, stream: bool) -> None:
    coder = AssistantAgent("coder", scripted(python("print(6 * 7)")), model_client_stream=stream)
    runner = CodeExecutorAgent("runner", executor)
    inner = Team([coder, runner], name="inner", max_turns=2)
    reviewer = AssistantAgent("reviewer", scripted("Good."), model_client_stream=stream)
    team = Team([inner, reviewer], name="outer", max_turns=2)
    with instrument(team):
        if stream:
            assert [item async for item in team.run_stream(task="Write code.")]
            assert trace.get_current_span() is trace.INVALID_SPAN
        else:
            await team.run(task="Write code.")
    assert exported.tree() == [
        "invoke_workflow outer",
        "  invoke_workflow inner",
        "    invoke_agent coder",
        "      chat",
        "    invoke_agent runner",
        "      execute_tool execute_code",
        "  invoke_agent reviewer",
        "    chat",
    ]
    workflow = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": "inner"}
    assert attributes(exported.one("invoke_workflow inner")) == workflow
    assert len({span.context.trace_id for span in exported.spans}) == 1


async def test_a_stream_that_is_left_early_ends_its_spans(executor: Executor, exported: Exported) -> None:
    agent = CodeActAgent("actor", executor, model_client=scripted(python("1"), "Yes."))
    with instrument(agent):
        async with aclosing(agent.run_stream(task="Go.")) as stream:
            async for item in stream:
                if isinstance(item, CodeGenerationEvent):
                    break
    # AutoGen's `run_stream` does not close the stream inside it; the event loop does that when it is collected.
    await until(lambda: exported.tree()[:2] == ["invoke_agent actor", "  chat"])
    assert exported.one("invoke_agent actor").status.status_code == StatusCode.UNSET


async def test_spans_of_the_start_and_stop_of_a_sandbox(exported: Exported) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    with instrument(executor):
        await executor.start()
        assert executor.sandbox.client is not None
        await executor.sandbox.client.stop()
        await executor.restart()
        await executor.stop()
    started, died, restarted, stopped = exported.spans
    assert exported.tree() == [
        *("codeact.sandbox.start", "codeact.sandbox.stop !SandboxDied"),
        *("codeact.sandbox.start", "codeact.sandbox.stop"),
    ]
    assert attributes(started) == attributes(restarted) == {"codeact.backend": "bubblewrap"}
    assert died.attributes is not None
    assert stopped.attributes is not None
    assert died.attributes["codeact.sandbox"] != stopped.attributes["codeact.sandbox"]
    assert started.end_time > started.start_time  # type: ignore[operator]


def test_a_sandbox_without_an_event_loop_reports_inside_the_span_of_its_caller(exported: Exported) -> None:
    with Sandbox("bubblewrap", tools=[look]) as box, instrument(box):
        with trace.get_tracer("test").start_as_current_span("mine"):
            assert box.run("look('a')").exit_code == 0
        list(box.stream("1 / 0"))
    assert exported.tree() == [
        *("mine", "  execute_tool execute_code", "    execute_tool look", "      database a"),
        "execute_tool execute_code !ZeroDivisionError",
    ]


async def test_spans_of_refused_and_timed_out_calls(exported: Exported) -> None:
    async def approve(request: Any) -> ToolApproval:
        return ToolApproval(request.name != "look", "no")

    BEGUN.append(asyncio.Event())
    code = "try:\n    look('a')\nexcept PermissionError:\n    pass\nwait()"
    async with BubblewrapCommandLineCodeExecutor(
        mode="session",
        tools=[look, wait],
        approve_tool=approve,
        tool_limits=ToolLimits(seconds=0.2),
    ) as executor:
        agent = CodeActAgent("actor", executor, model_client=scripted(python(code), "No."))
        with instrument(agent):
            await agent.run(task="Go.")
    assert exported.tree()[2:5] == [
        "  execute_tool execute_code !TimeoutError",
        "    execute_tool look !ToolRefused",
        "    execute_tool wait !timeout",
    ]


async def test_a_cancelled_run_ends_all_its_spans(executor: Executor, exported: Exported) -> None:
    begun = BEGUN[-1:] = [asyncio.Event()]
    agent = CodeActAgent("actor", executor, model_client=scripted(python("wait()")))
    with instrument(agent):
        run = asyncio.ensure_future(agent.run(task="Go."))
        await begun[0].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert exported.tree() == [
        "invoke_agent actor",  # AutoGen's own span does not count that as an error
        "  chat",
        "  execute_tool execute_code !CancelledError",
        "    execute_tool wait !cancelled",
    ]


async def test_content_is_recorded_only_if_switched_on_and_redacted(executor: Executor, exported: Exported) -> None:
    code = "print(look('hunter2'))\nbroken()"
    agent = CodeActAgent("actor", executor, model_client=scripted(model_answer(python(code)), model_answer("HUNTER2.")))

    def redact(text: str) -> str:
        return text.replace("hunter2", "***").replace("HUNTER2", "***").replace("12345", "***")

    with instrument(agent, content=True, redact=redact):
        await agent.run(task="The password is hunter2.")
    ours = [span for span in exported.spans if not span.name.startswith("database ")]  # that of the tool itself
    written = "\n".join(span.to_json() for span in ours)
    for secret in ("hunter2", "HUNTER2", "12345"):
        assert secret not in written
    asked = attributes(exported.spans[1])
    assert (
        '{"role": "user", "parts": [{"type": "text", "content": "The password is ***."}]}'
        in (asked["gen_ai.input.messages"])
    )
    assert attributes(exported.one("execute_tool look"))["gen_ai.tool.call.arguments"] == '{"name": "***"}'
    assert attributes(exported.one("execute_tool look"))["gen_ai.tool.call.result"] == "***"
    ran = exported.one("execute_tool execute_code")
    assert attributes(ran)["gen_ai.tool.call.arguments"] == '{"code": "print(look(\'***\'))\\nbroken()\\n"}'
    assert attributes(ran)["gen_ai.tool.call.result"].startswith("***\n")
    assert ran.status.description == "the secret is ***"
