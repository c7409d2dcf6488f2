"""Part H, case 20: cancelled at each await of a block with files, tools and output, and of what surrounds it."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.sandboxes import out, run

from .faults import eventually
from .oracles import sandboxes
from .subject import SUBJECTS, Kind

pytestmark = [pytest.mark.usefixtures("docker_engine", "untouched"), pytest.mark.timeout(120)]

SIZE = 700_000  # more than travels within an answer
MOST_AWAITS = 150
BLOCK = f"""
import hashlib, os, time
print(add(2, 3), hashlib.sha256(open('sent', 'rb').read()).hexdigest(), flush=True)
time.sleep(0.03)
with open('part', 'wb') as file:
    file.write(b'm' * {SIZE})
os.replace('part', 'made')
"""


class CancelAt(Coroutine[Any, Any, Any]):
    """A coroutine whose task is cancelled when it waits for the n-th time."""

    def __init__(self, inner: Coroutine[Any, Any, Any], number: int) -> None:
        self._inner = inner
        self._left = number

    def _waits(self, awaited: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return awaited

    def send(self, value: Any) -> Any:
        """Go on to the next await."""
        return self._waits(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        return self._waits(self._inner.throw(*error))

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._inner.__await__())


async def cancelled_at(call: Callable[[], Coroutine[Any, Any, Any]], number: int) -> bool:
    """Call something and cancel it at an await; False when it has ended before that."""
    task = asyncio.ensure_future(asyncio.create_task(CancelAt(call(), number)))
    await asyncio.wait({task}, timeout=20)
    assert task.done(), f"not cancelled at await {number}"
    if task.cancelled():
        return True
    task.result()
    return False


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


async def at_each_await(
    call: Callable[[], Coroutine[Any, Any, Any]], afterwards: Callable[[int], Awaitable[None]]
) -> int:
    """Cancel a call at its first await, its second and so on, until it ends; how many there are."""
    for number in range(1, MOST_AWAITS):
        tasks = asyncio.all_tasks()
        cancelled = await cancelled_at(call, number)
        await eventually(lambda before=tasks: asyncio.all_tasks() <= before, 30)  # type: ignore[misc]
        await afterwards(number)
        if not cancelled:
            return number - 1
    raise AssertionError(f"more than {MOST_AWAITS} awaits")


def check_files(work: Path, sent: bytes) -> None:
    """Whole files only, and none that nobody has made."""
    for path in work.rglob("*"):
        name = str(path.relative_to(work))
        # The code may have been killed while it wrote `part`.
        assert name in ("sent", "part", "made") or name.startswith("tmp_code_"), name
    assert (work / "sent").read_bytes() == sent
    if (work / "made").exists():
        assert (work / "made").read_bytes() == b"m" * SIZE


# Case H20.
@pytest.mark.parametrize("kind", SUBJECTS, ids=str, indirect=True)
async def test_a_block_cancelled_at_any_await_leaves_nothing_and_the_next_works(kind: Kind, tmp_path: Path) -> None:
    """Its file goes there, it calls a tool, it writes, a file comes back."""
    work = tmp_path / "work"
    work.mkdir()
    calls = 0

    async def add(a: int, b: int) -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.002)
        return a + b

    async with kind.make(work_dir=work, timeout=20, tools=[add]) as executor:
        (work / "sent").write_bytes(b"first")
        await run(executor, BLOCK)
        opened = descriptors()
        sent = b""

        async def once() -> None:
            nonlocal sent
            sent = os.urandom(SIZE)
            (work / "sent").write_bytes(sent)
            await out(executor, BLOCK)

        async def afterwards(number: int) -> None:
            called = calls
            check_files(work, sent)
            # The block is dead: nothing changes any more, and no tool is called.
            look = "import hashlib, os, time\nmade = lambda: os.path.exists('made') and os.stat('made').st_mtime_ns\n"
            look += "one = made(); time.sleep(0.1); print(one == made())\n"
            look += "print(hashlib.sha256(open('sent', 'rb').read()).hexdigest())\n"
            look += "print([n for n in os.listdir() if n.startswith('.')])"
            result = await run(executor, look)
            assert result.output == f"True\n{hashlib.sha256(sent).hexdigest()}\n[]\n", number
            assert result.state in ("kept", "restored", "none"), (number, result.state)
            assert calls == called, number
            check_files(work, sent)
            assert descriptors() <= opened, number

        assert await at_each_await(once, afterwards) >= 1
        # Its files travel in tasks of their own: cancelled after a time, it is anywhere in them.
        for moment in range(15):
            task = asyncio.ensure_future(once())
            await asyncio.wait({task}, timeout=moment * 0.006)
            task.cancel()
            await asyncio.wait({task}, timeout=20)
            assert task.done()
            await afterwards(moment)
    assert not sandboxes()
