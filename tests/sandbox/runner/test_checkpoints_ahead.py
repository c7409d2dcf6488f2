"""A block's checkpoint is taken when the previous block has ended, unless something of the session can run meanwhile."""

import asyncio
import os
import time

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.cases import case
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSE_S = 0.2
# When the youngest child of the session was started: the checkpoint, if the block has started none. The sandbox has the host's
# boot clock.
TICKS = os.sysconf("SC_CLK_TCK")
BEGAN = """
import os
def stat(pid, field):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[field])
print(max(stat(pid, 19) for pid in os.listdir("/proc") if pid.isdigit() and stat(pid, 1) == os.getpid()))
"""
CRASH = "import os; os._exit(1)"
RESTORED = ("crashed", "restored")


async def is_ahead(session: DockerCommandLineCodeExecutor, tries: int) -> bool:
    """Return whether a checkpoint was taken before its block was sent; on a busy machine that takes several tries."""
    for _ in range(tries):
        await asyncio.sleep(PAUSE_S)
        sent = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)
        if int(await out(session, BEGAN)) < sent:
            return True
    return False


class TestTaken:
    async def test_checkpoint_is_taken_before_the_block_is_sent(self, session):
        await out(session, "before = 1")
        assert await is_ahead(session, tries=20)
        # Also by a session that was asleep before.
        assert (await run(session, CRASH)).state == "restored"
        assert await is_ahead(session, tries=20)

    async def test_checkpoint_is_taken_with_the_block_if_something_can_run_before(self, session):
        for start, end in [
            (
                "import threading; stop = threading.Event(); thread = threading.Thread(target=stop.wait); thread.start()",
                "stop.set(); thread.join()",
            ),
            (
                "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
                "signal.signal(signal.SIGUSR1, signal.SIG_DFL)",
            ),
            (
                "import signal; signal.signal(signal.SIGINT, lambda *_: None)",
                "signal.signal(signal.SIGINT, signal.default_int_handler)",
            ),
            ("import faulthandler; faulthandler.register(12)", "faulthandler.unregister(12)"),
            ("import sys; sys.setprofile(lambda *_: None)", "sys.setprofile(None)"),
        ]:
            with case(start, end):
                await out(session, start)
                assert not await is_ahead(session, tries=2)
                await out(session, end)
                assert await is_ahead(session, tries=20)

    async def test_checkpoint_is_taken_ahead_although_children_run(self, session):
        """They change nothing in the session's memory, and see their pipes close when the session closes them."""
        await out(session, "import subprocess; cat = subprocess.Popen(['cat'], stdin=-1, stdout=-1, text=True)")
        await asyncio.sleep(PAUSE_S)
        assert await out(session, "cat.stdin.close(); cat.stdout.read(), cat.wait()") == "('', 0)\n"


THREAD = """
    import threading, time
    n = 0
    def count():
        global n
        while True: n += 1; time.sleep(0.001)
    threading.Thread(target=count, daemon=True).start()
"""
HANDLER = """
    import signal
    rings = []
    signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
"""


class TestUndoOfFailedBlock:
    @pytest.mark.parametrize(("start", "count"), [(THREAD, "n"), (HANDLER, "len(rings)")], ids=["thread", "handler"])
    async def test_failed_block_is_undone_while_something_else_runs(self, make_executor, start, count):
        executor = await make_executor(mode="session")
        await out(executor, start)
        began = time.monotonic()
        await out(executor, "1")
        # On a busy machine a block takes longer, and what has run before must be long beside that.
        await asyncio.sleep(PAUSE_S + 5 * (time.monotonic() - began))
        result = await run(executor, f"print({count}, flush=True); import os; os._exit(1)")
        assert (result.outcome, result.state) == RESTORED
        # It was forked a moment before the block printed, and not when the last one ended.
        assert 0 <= int(result.output) - int(await out(executor, count)) < int(result.output) / 2

    async def test_failed_block_is_undone_after_a_shell_block(self, make_executor):
        executor = await make_executor(mode="session")
        await out(executor, "import os; x = 1")
        await out(executor, "cd /tmp; export SHELL_SAYS=yes", "sh")
        result = await run(executor, "x = 2; print(os.getcwd(), os.environ['SHELL_SAYS'], flush=True); os._exit(1)")
        assert (result.outcome, result.output, result.state) == ("crashed", "/tmp yes\n", "restored")
        assert await out(executor, "x, os.getcwd(), os.environ['SHELL_SAYS']") == "(1, '/tmp', 'yes')\n"

    @pytest.mark.parametrize("start", ["pass", THREAD], ids=["idle", "thread"])
    async def test_failed_block_is_undone_after_requested_checkpoints_and_rollbacks(self, make_executor, start):
        executor = await make_executor(mode="session")
        await out(executor, start)
        await out(executor, "x = [1]")
        await executor.checkpoint()
        assert (await run(executor, "x.append(2)\n" + CRASH)).state == "restored"
        await out(executor, "x.append(3)")
        assert (await run(executor, "x.append(4)\n" + CRASH)).state == "restored"
        assert await out(executor, "x") == "[1, 3]\n"
        await executor.rollback()
        assert (await run(executor, "x.append(5)\n" + CRASH)).state == "restored"
        assert await out(executor, "x") == "[1]\n"

    async def test_failed_block_is_undone_with_blocks_sent_at_the_same_time(self, make_executor):
        executor = await make_executor(mode="session")
        await out(executor, "x = []")
        codes = [code for number in range(10) for code in (f"x.append({number})", f"x.append('lost')\n{CRASH}")]
        results = await asyncio.gather(*(run(executor, code) for code in codes))
        assert [result.state for result in results] == ["kept", "restored"] * 10
        assert await out(executor, "x") == f"{list(range(10))}\n"


class TestCheckpointLife:
    async def test_killed_checkpoint_is_taken_again(self, make_executor):
        executor = await make_executor(mode="session")
        await out(executor, "import os; x = 1")
        assert await is_ahead(executor, tries=20)
        session = int(await out(executor, "os.getpid()"))
        # The shell's own parent is not the session. One that has ended can stay a zombie, and its file can go meanwhile.
        each = f'set -- $(cat $stat 2>/dev/null); [ "$3$4" = S{session} ] && pids="$pids $1"'
        # A checkpoint that has been replaced is ended meanwhile, so on a busy machine there can be two for a moment.
        kill = f"for stat in /proc/[0-9]*/stat; do {each}; done; set -- $pids; [ $# = 1 ] && kill -9 $1 && echo killed; true"
        killed = ""
        for _ in range(100):
            if killed := await out(executor, kill, "sh"):
                break
            await asyncio.sleep(PAUSE_S)
        assert killed == "killed\n"
        await asyncio.sleep(PAUSE_S)
        assert (await run(executor, "x = 2; os._exit(1)")).state == "restored"
        assert await out(executor, "x") == "1\n"

    async def test_stopped_checkpoint_is_woken(self, make_executor):
        executor = await make_executor(mode="session")
        await out(executor, "import os; x = 1")
        assert await out(executor, "kill -STOP -1; echo done", "sh") == "done\n"
        assert (await run(executor, "x = 2; os._exit(1)")).state == "restored"
        assert await out(executor, "x") == "1\n"

    async def test_new_session_has_no_checkpoint(self, make_executor):
        """An idle sandbox takes no more memory than it must."""
        executor = await make_executor(mode="session")
        # The supervisor, the zygote, the session, and this shell.
        assert await out(executor, "set -- /proc/[0-9]*; echo $#", "sh") == "4\n"
        assert await is_ahead(executor, tries=20)
        for _ in range(30):
            count = await out(executor, "sleep 0.1; set -- /proc/[0-9]*; echo $#", "sh")
            # The checkpoint, and the process of the next shell; the checkpoint before takes some time to go.
            if count == "6\n":
                break
        assert count == "6\n"
