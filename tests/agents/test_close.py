"""Who made a part releases it: a loaded agent its own, the caller what it gave."""

import json

import pytest
from autogen_agentchat.base import ChatAgent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, SandboxNotStarted

pytestmark = pytest.mark.usefixtures("bubblewrap")

ANSWERS = ["```python\nprint(6 * 7)\n```", "It is 42. TERMINATE"]
HELLO = [CodeBlock(code="print('hello')", language="python")]


def reload(component, base):
    return base.load_component(json.loads(component.dump_component().model_dump_json()))


async def test_a_loaded_agent_stops_the_executor_that_it_made():
    client = ReplayChatCompletionClient(ANSWERS)
    given = CodeExecutorAgent("coder", BubblewrapCommandLineCodeExecutor(), model_client=client)
    agent = reload(given, ChatAgent)
    result = await agent.run(task="six times seven")
    assert result.messages[-1].content == "It is 42. TERMINATE"
    await agent.close()
    with pytest.raises(SandboxNotStarted):
        await agent.code_executor.execute_code_blocks(HELLO, CancellationToken())


async def test_closing_an_agent_leaves_parts_of_the_caller_open():
    async with BubblewrapCommandLineCodeExecutor() as executor:
        agent = CodeExecutorAgent("coder", executor)
        await agent.close()
        assert agent.code_executor is executor
        assert agent.model_client is None
        assert (await executor.execute_code_blocks(HELLO, CancellationToken())).output == "hello\n"
