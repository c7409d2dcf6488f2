"""Saved states and configurations of teams still load and behave as they did.

The files in `golden` were written with scripted models and real bubblewrap sessions.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team as BaseTeam
from autogen_core.models import UserMessage

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team, coder_executor_team, load_component
from tests.agents.codeact import python
from tests.agents.support import contains, received_by, scripted

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def pay(to: str, euros: int) -> dict[str, object]:
    """Pay somebody."""
    raise AssertionError("a rebuilt session calls no host tool")


async def test_state_of_a_team_has_its_participants_and_their_session(session: SandboxCodeExecutor) -> None:
    client = scripted(python("count += 1\nprint(count)"), "It is 3.")
    team = Team([CodeActAgent("actor", session, model_client=client, tools=[pay])], max_turns=1)

    await team.load_state(golden("team_state"))
    assert contains(await team.save_state(), golden("team_state"))
    result = await team.run(task="Count on.")

    assert result.messages[-1].to_text() == "It is 3."
    assert received_by(client)[1][-1] == UserMessage(content="3\n", source="actor")
    saved = golden("team_state")["agent_states"]["actor"]["agent_state"]["llm_context"]["messages"]
    assert [message.content for message in received_by(client)[0][1:]][: len(saved)] == [
        each["content"] for each in saved
    ]


async def test_state_of_coder_and_executor_has_the_thread_and_the_session(session: SandboxCodeExecutor) -> None:
    client = scripted("```python\nprint(price)\n```", "It is 21. TERMINATE")
    team = coder_executor_team(client, session)

    await team.load_state(golden("coder_executor_team_state"))
    result = await team.run(task="What was the price?")

    sources = ["user", "executor", "coder", "executor", "executor", "coder"]  # the executor was next when it was saved
    assert [message.source for message in result.messages] == sources
    assert result.messages[-2].to_text() == "21\n"
    assert result.stop_reason == "coder said TERMINATE"


@pytest.mark.parametrize("name", ["team", "coder_executor_team"])
async def test_configuration_of_a_team_loads_and_is_dumped_with_the_same_values(name: str) -> None:
    config = golden(name)
    team = BaseTeam.load_component(config)  # type: ignore[attr-defined]
    assert type(team) is Team
    assert contains(team.dump_component().model_dump(exclude_none=True)["config"], config["config"])
    assert type(load_component(config)) is Team
