"""Many sessions at once under mixed abuse for some minutes: does each hear its own output, the right verdict, and nothing else?

    python benchmarks/soak_abuse.py [--sandbox docker|bubblewrap] [--sessions 50] [--minutes 2]

Each session takes its sandbox from a pool and runs good blocks whose answer is known, between fork bombs, memory bombs, floods,
timeouts and kills whose verdict is known. Now and then it stops and takes a new sandbox. At the end: blocks run, wrong verdicts,
crossed output, errors of sandboxes, and the host before and after. Exits with 1 where anything is wrong.
"""

import argparse
import asyncio
import collections
import gc
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import ExecutorPool, Limits, SandboxError

LIMITS = Limits(memory="96m", pids=24, nofile=128, workspace="4m", tmp="4m", files=200, output=16 * 1024)
TIMEOUT_S = 20.0
SHORT_S = 2.0

GOOD = "good"
ABUSE = {
    # kind: (code, verdicts that are right)
    "fork bomb": ("import os\nwhile True:\n    os.fork()", {"error", "timeout", "oom"}),
    "memory bomb": ("hoard = []\nwhile True:\n    hoard.append(bytearray(4 << 20))", {"oom", "error"}),
    "memory bomb of a child": (
        "import subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-c', 'x = bytearray(300 << 20); print(len(x))'])\n"
        "print('{mark}', done.returncode != 0)",
        {"ok", "oom"},
    ),
    "flood": ("while True:\n    print('{mark}' * 50)", {"timeout"}),
    "busy loop in C": ("9 ** 9 ** 9", {"timeout", "oom", "error"}),
    "ignores signals": (
        "import signal, time\nfor n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
        {"timeout"},
    ),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", {"crashed"}),
    "aborts": ("import os\nos.abort()", {"crashed"}),
    "kills everything": ("import os, signal\nos.kill(-1, signal.SIGKILL)", {"crashed", "ok"}),
    "leaves without a word": ("import os\nos._exit(0)", {"crashed"}),
    "daemon": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('{mark}')",
        {"ok"},
    ),
    "raises": ("raise ValueError('{mark}')", {"error"}),
}
# A fork bomb that fails by itself leaves the session its children, dying or not waited for; what forks next to them may fail too.
FORKS = ("memory bomb of a child", "daemon")
NO_ROOM = "BlockingIOError"


class Soak:
    """The sessions and what they count."""

    def __init__(self, pool, seconds):
        self.pool = pool
        self.until = time.monotonic() + seconds
        self.counts = collections.Counter()
        self.wrong = []
        self.bombed = {}

    def note(self, what, *details):
        """Something that is not as it has to be."""
        self.counts[what] += 1
        if len(self.wrong) < 20:
            self.wrong.append((what, *details))

    async def session(self, number):
        """One user: blocks in sandboxes, one sandbox after the other."""
        choose = random.Random(number)
        while time.monotonic() < self.until:
            try:
                async with self.pool.executor() as executor:
                    for _ in range(choose.randint(5, 25)):
                        if time.monotonic() >= self.until:
                            break
                        kind = GOOD if choose.random() < 0.6 else choose.choice(list(ABUSE))
                        await self.block(executor, number, kind, choose.randrange(10**6))
            except SandboxError as error:
                self.note("sandbox errors", number, repr(error))

    async def block(self, executor, number, kind, salt):
        """Run one block and judge what came back."""
        mark = f"<session {number} {salt}>"
        if kind == GOOD:
            code, right = f"print('{mark}', sum(range({salt % 5000})))", {"ok"}
        else:
            code, right = ABUSE[kind][0].replace("{mark}", mark), ABUSE[kind][1]
        executor.sandbox.timeout = TIMEOUT_S if "timeout" not in right else SHORT_S
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
        self.counts["blocks"] += 1
        self.counts[f"blocks: {kind}"] += 1
        crowded = kind in FORKS and result.error is not None and result.error.type == NO_ROOM
        if crowded and self.bombed.get(number) is executor:
            self.counts["blocks without room beside a bomb's children"] += 1
            return
        if result.state != "kept":
            self.bombed.pop(number, None)
        elif kind == "fork bomb":
            self.bombed[number] = executor
        if result.outcome not in right:
            self.note("wrong outcomes", kind, result.outcome, result.exit_code, result.output[:300], result.notes)
        strangers = result.output.count("<session ") - result.output.count(mark)
        # The edge of a flood may have cut a mark in two.
        if strangers > (2 if kind == "flood" else 0):
            self.note("crossed outputs", kind, mark, result.output[:300])
        if kind == GOOD and result.output != f"{mark} {sum(range(salt % 5000))}\n":
            self.note("wrong answers", result.outcome, result.output[:300])


def host():
    """What a leak would show in."""
    gc.collect()
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return {
        "resident MiB": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "temporary files": sum(1 for _ in Path(tempfile.gettempdir()).iterdir()),
        "host free MiB": int(fields["MemAvailable"].split()[0]) >> 10,
    }


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sandbox", choices=["docker", "bubblewrap"], default="docker")
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=2)
    options = parser.parse_args()
    pool = ExecutorPool(
        4,
        backend=options.sandbox,
        mode="session",
        limits=LIMITS,
        max_alive=options.sessions + 6,
        acquire_timeout=300,
    )
    # The first pool of a process imports what stays: the Docker SDK, thread pools.
    async with pool, pool.executor():
        pass
    before = host()
    began = time.monotonic()
    async with pool:
        soak = Soak(pool, options.minutes * 60)
        await asyncio.gather(*(soak.session(number) for number in range(options.sessions)))
    seconds = time.monotonic() - began
    after = host()
    print(f"{options.sandbox}: {options.sessions} sessions for {seconds:.0f} s")
    for name in (
        "blocks",
        "blocks without room beside a bomb's children",
        "wrong outcomes",
        "wrong answers",
        "crossed outputs",
        "sandbox errors",
    ):
        print(f"  {name}: {soak.counts[name]}")
    print("  of them:", ", ".join(f"{name[8:]} {count}" for name, count in soak.counts.items() if ": " in name))
    for name, value in before.items():
        print(f"  {name}: {value} before, {after[name]} after")
    for each in soak.wrong:
        print("  ", *each)
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        tempfile.tempdir = folder
        asyncio.run(main())
