"""Process mode: what code does to the sandbox harms only its own block."""

import asyncio

import pytest

from tests.cases import case
from tests.sandbox.runner.test_process_mode import executor
from tests.sandbox.sandboxes import FORGE, out, run, shared_executor, short_result

__all__ = ["executor"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


exposed = shared_executor(timeout=40)

AGAIN_AND_AGAIN = """
import os, time
until = time.monotonic() + 1
while time.monotonic() < until:
    try: os.kill(-1, 9)
    except ProcessLookupError: pass
"""


class TestAttacksOnTheSandbox:
    """Everything in it has the same user, so signals can be sent; what must hold is the next block."""

    async def test_code_that_sends_signals_ends_normally_and_the_next_block_runs(self, exposed):
        for code in [
            "import os; [os.kill(1, number) for number in range(1, 65)]",
            "import os; os.kill(-1, 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 19)",
            "import os; os.kill(os.getppid(), 2)",
            AGAIN_AND_AGAIN,
        ]:
            with case(code):
                assert short_result(await run(exposed, code + "\nprint('done')")) == ("ok", 0, "done\n")
                for _ in range(3):
                    assert await out(exposed, "print('next')") == "next\n"

    async def test_code_that_stops_all_others_and_itself_ends_by_the_deadline(self, exposed):
        exposed.sandbox.timeout = 3
        code = "import os; os.kill(-1, 19); os.kill(os.getpid(), 19)"
        assert (await run(exposed, code)).outcome == "timeout"
        exposed.sandbox.timeout = 40
        assert await out(exposed, "print('next')") == "next\n"

    @pytest.mark.parametrize("threads", [0, 2])
    async def test_code_that_reports_its_end_has_ended_with_all_its_processes(self, executor, threads):
        """With a single thread it is killed at its word; with more, its process has to end, as others do that have."""
        code = f"""
    import time
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, b"here")
        time.sleep(60)
    os.read(reading, 4)
    children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
    open("pids", "w").write(" ".join([str(os.getpid()), *children]))
    for _ in range({threads}): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.write(control_socket(), frame(b"D", own_ident(), {{"exit_code": 0, "value": None, "error": None}}))
    {"pass" if threads else "time.sleep(60)"}
"""
        assert (await run(executor, FORGE + code)).outcome == "ok"
        left = "import os; pids = open('pids').read().split(); print(len(pids), [os.path.exists(f'/proc/{p}') for p in pids])"
        assert await out(executor, left) == "2 [False, False]\n"

    async def test_code_that_floods_its_socket_delays_nobody(self, make_executor):
        executor = await make_executor(timeout=3)
        flood = FORGE + "    while True: os.write(control_socket(), frame(b'?', 1, {'x': 'y' * 100000}))\n"
        flooding = asyncio.ensure_future(run(executor, flood))
        await asyncio.sleep(0.5)
        executor.sandbox.timeout = 30
        assert await out(executor, "print('meanwhile')") == "meanwhile\n"
        # The deadline's signal can cut a frame short, and what follows is garbage.
        assert (await flooding).outcome in {"timeout", "crashed"}
