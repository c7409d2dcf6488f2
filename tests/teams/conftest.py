"""What tests of teams share."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor


@pytest.fixture
async def executor(tmp_path: Path) -> AsyncIterator[CodeExecutor]:
    """A real executor. These tests look at the team around it, so AutoGen's local one will do for our few lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns that it is no sandbox; the code here is ours
        local = LocalCommandLineCodeExecutor(timeout=20, work_dir=tmp_path)
    async with local:
        yield local


@pytest.fixture
async def tidy() -> AsyncIterator[None]:
    """Fail where a task is left, or where asyncio reports something like an exception that was never retrieved."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []
    assert left == set()
