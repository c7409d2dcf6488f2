"""Saved states and configurations still load and behave as they did.

The files in `golden` were written with scripted models and real bubblewrap sessions: a `CodeActAgent` with
`setup="import json"` that was cancelled while its code ran, and a `CodeExecutorAgent` whose first attempt failed.
"""

import json
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent
from autogen_core.models import AssistantMessage, UserMessage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.code_runner import INTERRUPTED
from autogen_codeact.agents.replay import FILES_UNKNOWN
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import from_agent, python, user
from tests.agents.replay.support import DIFFERENT
from tests.agents.support import contains, received_by, scripted

GOLDEN = Path(__file__).parent / "golden"


def rebuilt(blocks: int) -> str:
    lines = [f"- {FILES_UNKNOWN.format(number=number)}" for number in range(1, blocks + 1)]
    return DIFFERENT.format(f"{blocks} blocks were") + "\n".join(lines)


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def conversation(state: Any) -> list[Any]:
    kinds = {"UserMessage": UserMessage, "AssistantMessage": AssistantMessage}
    return [kinds[message["type"]].model_validate(message) for message in state["llm_context"]["messages"]]


def pay(to: str, euros: int) -> dict[str, object]:
    """Pay somebody."""
    raise AssertionError("a rebuilt session calls no host tool")


async def test_state_of_a_codeact_agent_has_conversation_session_and_interrupted_calls(
    session: SandboxCodeExecutor,
) -> None:
    state = golden("codeact_agent_state")
    client = scripted(python("print(json.dumps([area(2), receipt, failed]))"), "Done.")
    agent = CodeActAgent("actor", session, model_client=client, tools=[pay], setup="import json")

    await agent.load_state(state)
    saved = await agent.save_state()
    assert saved["llm_context"] == state["llm_context"]
    assert saved["interrupted"] == state["interrupted"]
    assert contains(saved["journal"], state["journal"])

    await agent.run(task="Go on.")

    assert received_by(client)[1][1:] == [
        *conversation(state),
        user("Go on."),
        from_agent(f'{INTERRUPTED}\n- pay(to="Bob", euros=5) was done and gave {{"to": "Bob", "receipt": 102}}'),
        from_agent(rebuilt(4)),
        AssistantMessage(content=python("print(json.dumps([area(2), receipt, failed]))"), source="actor"),
        from_agent('[12.57, {"to": "Ann", "receipt": 101}, "nobody"]\n'),
    ]
    saved = await agent.save_state()
    assert saved["interrupted"] == []
    assert contains(saved["journal"]["entries"][:4], state["journal"]["entries"])
    assert len(saved["journal"]["entries"]) == 5


async def test_state_of_a_code_executor_agent_has_conversation_and_session(session: SandboxCodeExecutor) -> None:
    state = golden("code_executor_agent_state")
    client = scripted(python("print(total)"), "42 again.")
    agent = CodeExecutorAgent("coder", session, model_client=client, tools=[pay])

    await agent.load_state(state)
    replayed = await agent.rebuild_session()
    assert replayed is not None
    assert replayed.describe() == rebuilt(2)
    result = await agent.run(task="Again.")

    assert result.messages[-1].to_text() == "42 again."
    assert received_by(client)[0][1:] == [*conversation(state), user("Again.")]
    assert received_by(client)[1][-1] == UserMessage(content="42\n", source="coder")


def test_configurations_load_and_are_dumped_with_the_same_values() -> None:
    for name, kind in (("codeact_agent", CodeActAgent), ("code_executor_agent", CodeExecutorAgent)):
        config = golden(name)
        agent = ChatAgent.load_component(config)  # type: ignore[attr-defined]
        assert type(agent) is kind
        assert contains(agent.dump_component().model_dump(exclude_none=True)["config"], config["config"])
