"""What tests of agents share."""

import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[CodeExecutor]:
    """A real executor. These tests look at the agent around it, so AutoGen's local one will do for our few lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns that it is no sandbox; the code here is ours
        local = LocalCommandLineCodeExecutor(timeout=20, work_dir=tmp_path)
    async with local:
        yield local


@pytest.fixture
async def session(bubblewrap: None) -> AsyncIterator[SandboxCodeExecutor]:
    """A real sandbox with one interpreter that lives on."""
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=20) as executor:
        yield executor
