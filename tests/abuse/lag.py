"""Oracle 6: how long the event loop was held up, beside a control ticker in another process of the same run."""

import asyncio
import contextlib
import gc
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Self

TICK_S = 0.02
BEGIN, END = b"+", b"-"
"""What the control ticker is told."""
MOST_EXCESS_S = 0.1
"""How much longer than the control ticker the event loop may be held up in a test; on a quiet machine it is far less."""


class RunDelays:
    """For how long the kernel has let the threads of this process wait for a processor."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def since_last_s(self) -> tuple[float, float]:
        """Since the last call, in seconds: the sum for all threads, and the calling thread's part of it."""
        now = {}
        try:
            if os.stat("/proc/self/task").st_nlink - 2 != len(self._files):
                self._find_threads()
            for thread, file in self._files.items():
                now[thread] = int(os.pread(file, 128, 0).split()[1])
        except ProcessLookupError:  # it has ended, and another one has begun
            self._find_threads()
            return self.since_last_s()
        known, self._known = self._known, now
        new = {thread: (delay - known.get(thread, 0)) / 1e9 for thread, delay in now.items()}
        return sum(new.values()), new.get(str(threading.get_native_id()), 0.0)

    def _find_threads(self) -> None:
        threads = set(os.listdir("/proc/self/task"))
        for thread in self._files.keys() - threads:
            os.close(self._files.pop(thread))
        for thread in threads - self._files.keys():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self._files[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)

    def close(self) -> None:
        """Close its descriptors."""
        while self._files:
            os.close(self._files.popitem()[1])


class Ticks:
    """The largest lag of a series of ticks of 20 ms in the calling thread.

    The time for which the kernel let this process wait for a processor does not count: the machine does other things, too.
    Where a thread keeps the interpreter's lock, several threads wait for a processor in turn; then the processor time that this
    process has used says for how long. While the calling thread itself waited for a processor, it waited for no lock.
    """

    def __init__(self) -> None:
        self.largest_s = 0.0
        self._delays = RunDelays()
        self.begin()

    def begin(self) -> None:
        """Start a tick."""
        self._delays.since_last_s()
        self._began, self._used = time.monotonic(), time.process_time()

    def end(self) -> None:
        """End the tick, record its lag, and start the next tick."""
        took, used = time.monotonic() - self._began, time.process_time() - self._used
        delay_s, own_delay_s = self._delays.since_last_s()
        self.largest_s = max(self.largest_s, min(took - own_delay_s, max(took - delay_s, used)) - TICK_S)
        # Here, so that the next tick does not contain the time that it takes to read the delays.
        self._began, self._used = time.monotonic(), time.process_time()

    def close(self) -> None:
        """Close its descriptors."""
        self._delays.close()


class Control:
    """A ticker in another process of the same run. It ticks from `begin` to `largest_s`."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    @property
    def pid(self) -> int:
        """The number of the process that runs now."""
        return self._process.pid

    def begin(self) -> None:
        """Let it tick; where a case has killed the process, it starts again."""
        self._ask(BEGIN)

    def largest_s(self) -> float:
        """Largest lag since `begin`, in seconds; 0 where a case has killed the process, which then starts again."""
        return self._ask(END)

    def _ask(self, what: bytes) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(what)
            return float(self._process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.close()
            self._start()
            return 0.0

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=10)


class LoopLag:
    """Measures the running event loop from `async with` on: `async with LoopLag() as lag: ...`, then `lag.excess_s`."""

    def __init__(self, control: Control | None = None) -> None:
        self.control_s = 0.0
        """Largest lag of the control ticker in the other process, in seconds; known at the end."""
        self._given = control

    @property
    def largest_s(self) -> float:
        """Largest lag of the event loop so far, in seconds."""
        return self._ticks.largest_s

    @property
    def excess_s(self) -> float:
        """How much larger the event loop's lag was than the control ticker's, in seconds; known at the end."""
        return self.largest_s - self.control_s

    async def __aenter__(self) -> Self:
        self._control = self._given or Control()
        # A collection that scans all modules of the tests takes 0.3 s: only what comes from here on counts.
        self._freezes = gc.get_freeze_count() == 0  # one within another leaves that to it
        if self._freezes:
            gc.collect()
            gc.freeze()
        self._control.begin()
        self._loop = asyncio.get_running_loop()
        self._ticks = Ticks()
        self._schedule()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        self._ticks.end()  # a stall just before this point counts
        self._ticks.close()
        if self._freezes:
            gc.unfreeze()
        self.control_s = self._control.largest_s()
        if self._given is None:
            self._control.close()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticks.end()
        self._schedule()


async def median_excess(load: Callable[[], Awaitable[object]], times: int = 3) -> float:
    """Run a load several times, or until most of these times are under `MOST_EXCESS_S`, as then the median is."""
    found = []
    for _ in range(times):
        async with LoopLag() as lag:
            await load()
        found.append(lag.excess_s)
        under = [excess_s for excess_s in found if excess_s < MOST_EXCESS_S]
        if len(under) > times // 2:
            return max(under)
    return median(found)


def _answer_until_told() -> None:
    """Tick from `BEGIN` to `END`, and print the largest lag at each of them; end with standard input."""
    ticks, is_ticking = Ticks(), False
    while True:
        asked = bool(select.select([0], [], [], TICK_S if is_ticking else None)[0])
        if is_ticking:
            ticks.end()
        else:
            ticks.begin()
        if asked:
            what = os.read(0, 1)
            if not what:
                return
            is_ticking = what == BEGIN
            print(ticks.largest_s, flush=True)
            ticks.largest_s = 0.0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _answer_until_told()
