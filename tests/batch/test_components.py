"""Batches of agents that are made from component configs."""

from pathlib import Path
from typing import Any

import pytest
from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import BatchChangedError
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.teams import coder_executor_team
from tests.agents.support import scripted
from tests.batch.support import MakeAgent, asked, batch, double, once, rows_of
from tests.openai_server import OpenAIServer


def config_of(client: ChatCompletionClient, **options: Any) -> ComponentModel:
    executor = BubblewrapCommandLineCodeExecutor(mode="session", **options)
    agent = CodeActAgent("coder", executor, model_client=client, describe_environment=False)
    return agent.dump_component()


def with_key(component: ComponentModel) -> dict[str, Any]:
    """The config as a user has it: a dumped client has no key that can be used."""
    config = component.model_dump()
    config["config"]["model_client"]["config"]["api_key"] = "none-needed"
    return config


async def test_agents_of_a_config_share_a_client_and_a_pool(
    bubblewrap: None, server: OpenAIServer, tmp_path: Path
) -> None:
    config = with_key(config_of(server.client(), timeout=20))
    rows = await rows_of(config, [double(1), double(2)], tmp_path, configuration=None)
    again = await rows_of(config, [double(1), double(2)], tmp_path, configuration=None)

    assert [(row.id, row.outcome, row.answer) for row in rows] == [
        ("double/1", "completed", "2"),
        ("double/2", "completed", "4"),
    ]
    assert again == []
    assert asked(server) == once(1, 2)
    assert "none-needed" not in (tmp_path / "batch.json").read_text()


async def test_changed_component_config_is_noticed(bubblewrap: None, server: OpenAIServer, tmp_path: Path) -> None:
    await rows_of(with_key(config_of(server.client())), [double(1)], tmp_path, configuration=None)
    other = with_key(config_of(server.client()))
    other["config"]["max_steps"] = 3
    with pytest.raises(BatchChangedError, match="another configuration: agent changed"):
        await rows_of(other, [double(1)], tmp_path, configuration=None)


async def test_scripted_model_of_a_config_begins_anew_for_each_task(bubblewrap: None) -> None:
    config = config_of(scripted("```python\nx = 3\n```", "```python\nfinal_answer(x)\n```"))
    rows = await rows_of(config, [double(1), double(2)])
    assert [(row.outcome, row.answer) for row in rows] == [("completed", "3")] * 2


async def test_team_of_a_config_gives_an_answer(bubblewrap: None) -> None:
    executor = BubblewrapCommandLineCodeExecutor(timeout=20)
    team = coder_executor_team(scripted("```python\nprint(6 * 7)\n```", "It is 42. TERMINATE"), executor)
    (row,) = await rows_of(team.dump_component(), [double(1)])
    assert (row.outcome, row.answer, row.steps) == ("completed", "It is 42. TERMINATE", 1)


def test_what_makes_no_agent_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="make_agent has to be a function or a component config, not a int"):
        batch(3, [double(1)])


async def test_config_that_is_none_is_an_error_of_the_batch(bubblewrap: None, make: MakeAgent) -> None:
    with pytest.raises(TypeError, match="a component config is an object with `provider` and `config`"):
        await rows_of({"agent": 1}, [double(1)])
