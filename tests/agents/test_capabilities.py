"""What agents do with an executor of a third party: all that its methods allow, whatever its class."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.capabilities import Capabilities, capabilities_of
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted


class ThirdPartyExecutor(CodeExecutor):
    """An executor that has the methods of the protocols, and none of our classes among its bases."""

    component_type = "code_executor"

    def __init__(self, mode: str) -> None:
        self._inner = BubblewrapCommandLineCodeExecutor(mode=mode, timeout=20)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        return await self._inner.execute_code_blocks(code_blocks, cancellation_token)

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    async def restart(self) -> None:
        await self._inner.restart()


@pytest.fixture
async def third_party(bubblewrap: None) -> AsyncIterator[ThirdPartyExecutor]:
    async with ThirdPartyExecutor("session") as executor:
        yield executor


class Shop:
    def __init__(self) -> None:
        self.sold = 0

    def buy(self, name: str) -> int:
        """Buy something, and return the price."""
        self.sold += 1
        return 40 + self.sold


def test_our_executor_has_tools_and_in_session_mode_a_session() -> None:
    process = BubblewrapCommandLineCodeExecutor()
    session = BubblewrapCommandLineCodeExecutor(mode="session")
    assert capabilities_of(process) == Capabilities(tools=process, facts=process, observed=process)
    assert capabilities_of(session) == Capabilities(tools=session, session=session, facts=session, observed=session)


def test_third_party_executor_has_what_its_methods_offer() -> None:
    process, session = ThirdPartyExecutor("process"), ThirdPartyExecutor("session")
    assert not isinstance(session, SandboxCodeExecutor)
    assert capabilities_of(process) == Capabilities(tools=process, facts=process, observed=process)
    assert capabilities_of(session) == Capabilities(tools=session, session=session, facts=session, observed=session)


def test_executors_of_autogen_have_no_capabilities(executor: CodeExecutor) -> None:
    assert capabilities_of(executor) == Capabilities()


async def test_third_party_session_gets_tools_output_and_final_answer(third_party: ThirdPartyExecutor) -> None:
    shop = Shop()
    client = scripted(python("price = buy('tea')\nprint('bought', flush=True)"), python("final_answer(price)"))
    agent = CodeActAgent("actor", third_party, model_client=client, tools=[shop.buy], stream_output=True)

    seen = [item async for item in agent.run_stream(task="Buy tea.")]

    chunks = [item.content for item in seen if isinstance(item, ModelClientStreamingChunkEvent)]
    assert "".join(chunks) == "bought\n"
    answer = seen[-1].messages[-1]  # type: ignore[union-attr]
    assert (answer.to_text(), answer.metadata["answered_by"]) == ("41", "final_answer")
    assert "def buy(name: str) -> int:" in str(received_by(client)[0][0].content)


async def test_third_party_executor_without_a_session_is_refused_only_by_codeact(bubblewrap: None) -> None:
    shop = Shop()
    async with ThirdPartyExecutor("process") as executor:
        with pytest.raises(ValueError, match="needs a session: create its executor"):
            CodeActAgent("actor", executor, model_client=scripted())
        runner = CodeExecutorAgent("runner", executor, tools=[shop.buy])
        result = await runner.run(task=python("print(buy('tea'))"))
        assert result.messages[-1].to_text() == "41\n"
        assert (await runner.save_state())["journal"] is None
