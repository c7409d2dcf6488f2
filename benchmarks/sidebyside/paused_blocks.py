"""Blocks after pauses and without, with what the machine does meanwhile; standard library only."""

import asyncio
import os
import random
import signal
import time
from contextlib import contextmanager
from pathlib import Path

from .worker import check

VARIANTS = {}
CODE, ANSWER = "print(6 * 7)", "42\n"
PAUSE_S = (0.2, 2.0)
IDLE_STATES = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state[1-9]*/usage"))


def counters():
    """Return what the machine has counted until now: context switches, page faults, and how often a processor went idle."""
    with open("/proc/stat", encoding="ascii") as lines:
        switches = next(int(line.split()[1]) for line in lines if line.startswith("ctxt"))
    with open("/proc/vmstat", encoding="ascii") as lines:
        faults = next(int(line.split()[1]) for line in lines if line.startswith("pgfault"))
    return {"switches": switches, "faults": faults, "idles": sum(int(path.read_text()) for path in IDLE_STATES)}


async def _block(variant):
    before = counters()
    began = time.perf_counter()
    answer = await variant.run("python", CODE)
    seconds = time.perf_counter() - began
    after = counters()
    check(answer, ANSWER)
    return {"seconds": seconds, **{name: after[name] - before[name] for name in before}}


async def back_to_back(variants, count, seed, *, same):
    """Run blocks without pauses, in one of the sandboxes or each in a random one."""
    chance = random.Random(seed)
    one = chance.choice(variants)
    return [await _block(one if same else chance.choice(variants)) for _ in range(count)]


async def agents(variants, seconds, seed, *, awake=False):
    """Run blocks as independent agents do: each sandbox has a block, then a pause; never two blocks at the same time.

    Args:
        variants: The sandboxes.
        seconds: How long.
        seed: Of the pauses.
        awake: Whether idle processors are kept from sleeping, by processes that run only when nothing else does.
    """
    chance, one_at_a_time, until = random.Random(seed), asyncio.Lock(), time.monotonic() + seconds

    async def agent(variant):
        found = []
        await asyncio.sleep(chance.uniform(0, PAUSE_S[1]))
        while not found or time.monotonic() < until:
            async with one_at_a_time:
                found.append(await _block(variant))
            await asyncio.sleep(chance.uniform(*PAUSE_S))
        return found

    with _spinning() if awake else _nothing():
        return [block for blocks in await asyncio.gather(*map(agent, variants)) for block in blocks]


async def idle_machine(variants, count, seed):
    """Run blocks in random sandboxes, each after a pause in which nothing else runs."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        await asyncio.sleep(chance.uniform(*PAUSE_S))
        found.append(await _block(chance.choice(variants)))
    return found


@contextmanager
def _nothing():
    yield


@contextmanager
def _spinning():
    """Keep each processor busy with a process of the scheduling class that yields to every other process."""
    spinners = []
    try:
        for processor in sorted(os.sched_getaffinity(0)):
            pid = os.fork()
            if pid == 0:
                _spin(processor)
            spinners.append(pid)
        yield
    finally:
        for pid in spinners:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _spin(processor):
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(0, {processor})
        parent = os.getppid()
        while os.getppid() == parent:
            for _ in range(100_000):
                pass
    finally:
        os._exit(0)


PROBES = {"back to back": back_to_back, "agents": agents, "idle machine": idle_machine}
