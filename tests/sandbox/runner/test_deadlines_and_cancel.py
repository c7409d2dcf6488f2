"""Deadlines are the supervisor's, the host has one of its own, and cancelling kills before it returns."""

import asyncio
import time

import pytest
from autogen_core import CancellationToken

from tests.cases import case
from tests.sandbox.sandboxes import block, out, run, shared_executor, short_result

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT_S = 3
"""Long enough for a block to start and to print on a loaded machine."""
ALIVE = """
    import os
    def alive(pid):
        # Of the supervisor's own processes nobody can see the descriptors.
        try:
            zombie = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return False
        return not zombie and os.access(f"/proc/{pid}/fd", os.R_OK)
    print(any(alive(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()))
"""


executor = shared_executor(timeout=TIMEOUT_S)


session = shared_executor(mode="session", timeout=TIMEOUT_S)


class TestDeadline:
    async def test_deadline_of_each_block_is_its_own(self, executor):
        blocks = [block(f"import time; time.sleep(1.1); print({n})") for n in range(3)]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert short_result(result) == ("ok", 0, "0\n1\n2\n")

    async def test_deadline_may_be_far_in_the_future(self, make_executor):
        for timeout in [1e10, float("inf"), 10**30]:
            with case(timeout):
                executor = await make_executor(timeout=timeout)
                assert await out(executor, "print(1)") == "1\n"

    async def test_deadline_of_one_block_does_not_affect_others(self, executor):
        results = await asyncio.gather(
            *(run(executor, f"import time; time.sleep({s}); print({s})") for s in (0, 0.5, 60))
        )
        assert [short_result(result) for result in results] == [
            ("ok", 0, "0\n"),
            ("ok", 0, "0.5\n"),
            ("timeout", 124, "\n Timeout"),
        ]


class TestCancellation:
    @pytest.mark.parametrize(("mode", "way"), [("process", "token"), ("session", "task"), ("session", "wait_for")])
    async def test_cancellation_is_reported_after_the_block_is_killed(self, make_executor, mode, way):
        executor = await make_executor(mode=mode, timeout=30)
        await out(executor, "x = 1")
        code = """
            import os, subprocess, time
            x = 2
            subprocess.Popen(["sleep", "300"], start_new_session=True)
            subprocess.Popen(["sh", "-c", "trap '' TERM INT; while :; do sleep 1; done"])
            time.sleep(60)
        """
        token = CancellationToken()
        call = executor.execute_code_blocks([block(code)], token)
        running = asyncio.ensure_future(asyncio.wait_for(call, 0.5) if way == "wait_for" else call)
        await asyncio.sleep(0.5)
        if way == "token":
            token.cancel()
        elif way == "task":
            running.cancel()
        began = time.monotonic()
        with pytest.raises(TimeoutError if way == "wait_for" else asyncio.CancelledError):
            await running
        assert time.monotonic() - began < 30
        assert await out(executor, ALIVE) == "False\n"
        if mode == "session":
            # As after a timeout: the variables are those of before the block.
            assert await out(executor, "x") == "1\n"

    async def test_cancelling_one_block_leaves_the_others(self, executor):
        token = CancellationToken()
        others = [asyncio.ensure_future(run(executor, f"import time; time.sleep(0.4); print({n})")) for n in range(3)]
        cancelled = asyncio.ensure_future(executor.execute_code_blocks([block("import time; time.sleep(60)")], token))
        await asyncio.sleep(0.1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert [short_result(await other) for other in others] == [("ok", 0, f"{n}\n") for n in range(3)]

    async def test_cancelled_waiting_block_never_runs(self, session):
        await out(session, "ran = []")
        first = asyncio.ensure_future(run(session, "import time; time.sleep(2); ran.append(1)"))
        token = CancellationToken()
        second = asyncio.ensure_future(session.execute_code_blocks([block("ran.append(2)")], token))
        third = asyncio.ensure_future(run(session, "ran.append(3)"))
        await asyncio.sleep(0.1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done()
        await asyncio.gather(first, third)
        assert await out(session, "ran") == "[1, 3]\n"

    async def test_cancellation_stops_the_blocks_that_were_to_follow(self, executor):
        token = CancellationToken()
        blocks = [block("import time; time.sleep(2)"), block("open('/workspace/second', 'w')")]
        running = asyncio.ensure_future(executor.execute_code_blocks(blocks, token))
        await asyncio.sleep(0.2)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert "second" not in await executor.list_files()
