"""Blocks after pauses and without; standard library only."""

import asyncio
import random
import time

from .worker import check

VARIANTS = {}
CODE, ANSWER = "print(6 * 7)", "42\n"
PAUSE_S = (0.2, 2.0)


async def _block(variant):
    began = time.perf_counter()
    answer = await variant.run("python", CODE)
    seconds = time.perf_counter() - began
    check(answer, ANSWER)
    return seconds


async def back_to_back(variants, count, seed):
    """Run blocks without pauses, in one of the sandboxes."""
    one = random.Random(seed).choice(variants)
    return [await _block(one) for _ in range(count)]


async def agents(variants, seconds, seed):
    """Run blocks as independent agents do: each sandbox has a block, then a pause; never two blocks at the same time."""
    chance, one_at_a_time, until = random.Random(seed), asyncio.Lock(), time.monotonic() + seconds

    async def agent(variant):
        found = []
        await asyncio.sleep(chance.uniform(0, PAUSE_S[1]))
        while not found or time.monotonic() < until:
            async with one_at_a_time:
                found.append(await _block(variant))
            await asyncio.sleep(chance.uniform(*PAUSE_S))
        return found

    return [block for blocks in await asyncio.gather(*map(agent, variants)) for block in blocks]


async def idle_machine(variants, count, seed):
    """Run blocks in random sandboxes, each after a pause in which nothing else runs."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        await asyncio.sleep(chance.uniform(*PAUSE_S))
        found.append(await _block(chance.choice(variants)))
    return found


PROBES = {"back to back": back_to_back, "agents": agents, "idle machine": idle_machine}
