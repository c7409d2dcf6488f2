"""What agents find that an executor can do."""

import pytest
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.capabilities import Capabilities, capabilities_of
from tests.agents.support import scripted


def test_our_executor_has_a_sandbox_and_in_session_mode_a_session() -> None:
    process = BubblewrapCommandLineCodeExecutor()
    session = BubblewrapCommandLineCodeExecutor(mode="session")
    assert capabilities_of(process) == Capabilities(process)
    assert capabilities_of(session) == Capabilities(session, session)


def test_executors_of_autogen_have_no_capabilities(executor: CodeExecutor) -> None:
    assert capabilities_of(executor) == Capabilities()


def test_an_executor_without_a_session_is_refused_by_codeact() -> None:
    with pytest.raises(ValueError, match="needs a session: create its executor"):
        CodeActAgent("actor", BubblewrapCommandLineCodeExecutor(), model_client=scripted())
