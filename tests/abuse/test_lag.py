"""The sixth oracle notices what it should: a stall of the event loop, and nothing else."""

import asyncio
import hashlib
import time

from .lag import MOST_EXCESS_S, LoopLag, median_excess


async def test_a_stall_is_noticed() -> None:
    async with LoopLag() as lag:
        await asyncio.sleep(0.05)
        time.sleep(0.5)  # noqa: ASYNC251 - it is what must be noticed
    assert 0.4 < lag.largest_s < 5
    assert lag.excess_s > MOST_EXCESS_S


async def test_work_in_a_thread_is_no_stall() -> None:
    async def work() -> None:
        await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"x", b"y", 300_000)

    assert await median_excess(work) < MOST_EXCESS_S


async def test_one_stall_in_three_runs_passes_and_two_fail() -> None:
    stalls = iter([0.3, 0.0, 0.0, 0.3, 0.3, 0.0])

    async def load() -> None:
        time.sleep(next(stalls))  # noqa: ASYNC251

    assert await median_excess(load) < MOST_EXCESS_S
    assert await median_excess(load) > MOST_EXCESS_S
