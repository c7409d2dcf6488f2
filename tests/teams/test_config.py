"""A team as JSON: out, in again, and the same conversation; saved files still load; what is loaded of a stranger's."""

import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_core import ComponentModel
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team, coder_executor_team, load_component
from autogen_codeact.teams.loading import ALLOWED, FIXED, MOST, PARTS, TEMPLATES
from tests.agents.codeact import python
from tests.agents.support import contains, received_by, scripted

from .support import PRINT_42, coder, texts_of

SCRIPT = ["```python\nraise SystemExit(3)\n```", PRINT_42, "It is 42. TERMINATE"]


def through_json(team):
    text = team.dump_component().model_dump_json()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the local executor says that it is no sandbox
        loaded = BaseTeam.load_component(ComponentModel.model_validate_json(text))
    assert type(loaded) is type(team)
    assert loaded.dump_component().model_dump_json() == text
    return loaded


@pytest.mark.parametrize("reviewer", [None, [PRINT_42, PRINT_42]])
async def test_loaded_team_has_the_same_conversation(executor, reviewer):
    def team():
        review = ReplayChatCompletionClient(reviewer) if reviewer else None
        return coder_executor_team(ReplayChatCompletionClient(SCRIPT), executor, reviewer_model_client=review)

    made, loaded = team(), through_json(team())
    first, second = await made.run(task="six times seven"), await loaded.run(task="six times seven")
    assert len(first.messages) == (8 if reviewer else 6)
    assert [(m.type, *pair) for m, pair in zip(first.messages, texts_of(first), strict=True)] == [
        (m.type, *pair) for m, pair in zip(second.messages, texts_of(second), strict=True)
    ]
    assert first.stop_reason == second.stop_reason == "coder said TERMINATE"


@pytest.mark.parametrize("condition", [None, MaxMessageTermination(5)])
@pytest.mark.parametrize("max_turns", [None, 7])
def test_every_argument_is_in_the_config(condition, max_turns):
    model = ReplayChatCompletionClient([])
    arguments = {
        "name": "Duo",
        "description": "Two.",
        "emit_team_events": True,
        "begin_with_first": True,
    }
    team = Team(
        [coder(model), Team([coder(model)], name="inner")],
        termination_condition=condition,
        max_turns=max_turns,
        **arguments,
    )
    config = through_json(team).dump_component().config
    assert {name: config[name] for name in arguments} == arguments
    assert config.get("max_turns") == max_turns
    assert ("termination_condition" in config) == (condition is not None)
    kinds = [part["provider"].rpartition(".")[2] for part in config["participants"]]
    assert kinds == ["AssistantAgent", "Team"]


def test_custom_message_types_are_not_dropped_silently():
    team = Team([coder(ReplayChatCompletionClient([]))], custom_message_types=[TextMessage])
    with pytest.raises(ValueError, match="custom_message_types can't be dumped"):
        team.dump_component()


def load(**config):
    return Team.load_component({"provider": "autogen_codeact.teams.Team", "config": config})


def part(provider, **config):
    return {"provider": provider, "config": config}


GOOD = json.loads(coder(ReplayChatCompletionClient([])).dump_component().model_dump_json())
FOREIGN = "autogen_agentchat.conditions.MaxMessageTermination"


def test_a_participant_that_is_neither_agent_nor_team_is_refused():
    with pytest.raises(TypeError, match="A participant is an agent or a team, not a MaxMessageTermination"):
        load(participants=[GOOD, part(FOREIGN, max_messages=3)])


@pytest.mark.parametrize("wrong", [{"max_turn": 3}, {"runtime": None}, {"max_turns": 0}, {"participants": "coder"}])
def test_an_unknown_key_or_a_wrong_value_is_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        load(**{"participants": [GOOD], **wrong})


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


@pytest.mark.parametrize("name", ["team", "coder_executor_team"])
async def test_configuration_of_a_team_loads_and_is_dumped_with_the_same_values(name: str) -> None:
    config = golden(name)
    team = BaseTeam.load_component(config)  # type: ignore[attr-defined]
    assert type(team) is Team
    assert contains(team.dump_component().model_dump(exclude_none=True)["config"], config["config"])
    assert type(load_component(config)) is Team


def _class_of(provider):
    module, _, name = provider.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return None  # not installed


def _schema(provider):
    found = _class_of(provider)
    return found and found.component_config_schema.model_fields


@pytest.mark.parametrize("provider", sorted(ALLOWED))
def test_each_allowed_field_exists(provider):
    plain = set(ALLOWED[provider].plain.split())
    assert plain <= set(_schema(provider) or plain)
    assert not plain & (FIXED.keys() | MOST.keys() | PARTS.keys() | TEMPLATES)
