"""`run_cancellable`: a cancelled token cancels the code, and the task that awaits it goes on afterwards."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors.tools.adapters import run_cancellable

DEADLINE_S = 20.0


def later(cancel: Callable[[], Any]) -> None:
    asyncio.get_running_loop().call_later(0.01, cancel)


def in_another_thread(cancel: Callable[[], Any]) -> None:
    threading.Timer(0.01, cancel).start()


@pytest.mark.parametrize("when", [later, in_another_thread, lambda cancel: cancel()], ids=["later", "thread", "before"])
async def test_a_token_cancels_the_code_and_not_the_task(when: Callable[[Callable[[], Any]], None]) -> None:
    token = CancellationToken()
    when(token.cancel)
    with pytest.raises(asyncio.CancelledError):
        await run_cancellable(asyncio.sleep(DEADLINE_S), token)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_token_that_is_cancelled_afterwards_does_nothing() -> None:
    token = CancellationToken()
    assert await run_cancellable(asyncio.sleep(0, "done"), token) == "done"
    token.cancel()
    await asyncio.sleep(0)


async def test_a_cancellation_that_the_code_swallows_counts() -> None:
    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(DEADLINE_S)
        return "cancelled"

    waiting = asyncio.create_task(run_cancellable(stubborn(), CancellationToken()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
