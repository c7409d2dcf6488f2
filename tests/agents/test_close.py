"""Who made a part releases it: a loaded agent its own, the caller what it gave."""

import json

import pytest
from autogen_agentchat.base import ChatAgent, Team
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxNotStarted
from autogen_codeact.teams import coder_executor_team

pytestmark = pytest.mark.usefixtures("docker_engine")

ANSWERS = ["```python\nprint(6 * 7)\n```", "It is 42. TERMINATE"]
HELLO = [CodeBlock(code="print('hello')", language="python")]


def reload(component, base):
    return base.load_component(json.loads(component.dump_component().model_dump_json()))


async def test_a_loaded_agent_stops_the_executor_that_it_made():
    given = CodeExecutorAgent(
        "coder", DockerCommandLineCodeExecutor(), model_client=ReplayChatCompletionClient(ANSWERS)
    )
    agent = reload(given, ChatAgent)
    result = await agent.run(task="six times seven")
    assert result.messages[-1].content == "It is 42. TERMINATE"
    await agent.close()
    with pytest.raises(SandboxNotStarted):
        await agent.code_executor.execute_code_blocks(HELLO, CancellationToken())


async def test_closing_an_agent_leaves_parts_of_the_caller_open():
    async with DockerCommandLineCodeExecutor() as executor:
        agent = CodeExecutorAgent("coder", executor)
        await agent.close()
        assert agent.code_executor is executor
        assert agent.model_client is None
        assert (await executor.execute_code_blocks(HELLO, CancellationToken())).output == "hello\n"


async def test_a_loaded_team_closes_its_agents():
    team = reload(coder_executor_team(ReplayChatCompletionClient(ANSWERS), DockerCommandLineCodeExecutor()), Team)
    result = await team.run(task="six times seven")
    assert [message.content for message in result.messages[2:]] == ["42\n", "It is 42. TERMINATE"]
    await team.close()
    with pytest.raises(SandboxNotStarted):
        await team.participants[1].code_executor.execute_code_blocks(HELLO, CancellationToken())
