"""`cancel_scope`: a cancelled token cancels the code inside, and the task goes on afterwards."""

import asyncio
import threading

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors.executor import cancel_scope

DEADLINE_S = 20.0


async def test_a_token_cancels_the_code_inside_and_not_the_task() -> None:
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.01, token.cancel)
    with pytest.raises(asyncio.CancelledError), cancel_scope(token):
        await asyncio.sleep(DEADLINE_S)
    task = asyncio.current_task()
    assert task.cancelling() == 0
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.sleep(0)


async def test_a_token_may_be_cancelled_in_another_thread() -> None:
    token = CancellationToken()
    canceller = threading.Timer(0.01, token.cancel)
    canceller.start()
    with pytest.raises(asyncio.CancelledError), cancel_scope(token):
        await asyncio.sleep(DEADLINE_S)
    canceller.join(DEADLINE_S)


async def test_no_cancellation_comes_after_the_scope() -> None:
    token = CancellationToken()
    with cancel_scope(token):
        # Requested inside, but it would only come at the next await, which is outside.
        token.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
