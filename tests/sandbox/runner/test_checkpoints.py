"""`checkpoint()` and `rollback()`, what a checkpoint does not keep open, and when it is taken."""

import asyncio
import time
from pathlib import Path

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.sandbox.conftest import MakeExecutor
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")


PROCESSES = "import os; len([name for name in os.listdir('/proc') if name.isdigit()])"


class TestRollback:
    async def test_rollback_restores_memory_directory_and_environment_repeatedly(self, session):
        await out(session, "import os; x = [1]; os.chdir('/tmp'); os.environ['WHEN'] = 'before'")
        await session.checkpoint()
        for _ in range(3):
            await out(
                session, "x.append(2); y = 1; os.chdir('/'); os.environ['WHEN'] = 'after'; os.environ['NEW'] = '1'"
            )
            await out(session, "export SHELL_NEW=1; cd /usr", "sh")
            await session.rollback()
            code = (
                "x, 'y' in globals(), os.getcwd(), os.environ['WHEN'], 'NEW' in os.environ, 'SHELL_NEW' in os.environ"
            )
            assert await out(session, code) == "([1], False, '/tmp', 'before', False, False)\n"
            assert (
                await out(session, "pwd; echo $WHEN ${NEW-unset} ${SHELL_NEW-unset}", "sh")
                == "/tmp\nbefore unset unset\n"
            )
        await out(session, "os.chdir('/workspace')")

    async def test_rollback_works_after_timeouts_crashes_and_restored_blocks(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", timeout=3)
        await out(executor, "x = 'at the checkpoint'")
        await executor.checkpoint()
        await out(executor, "x = 'later'")
        for code, outcome in (("import time; time.sleep(60)", "timeout"), ("import os; os.abort()", "crashed")):
            result = await run(executor, "x = 'in the block'\n" + code)
            assert (result.outcome, result.state) == (outcome, "restored")
            assert await out(executor, "x") == "'later'\n"
        await executor.rollback()
        assert await out(executor, "x") == "'at the checkpoint'\n"

    async def test_random_numbers_continue_after_a_rollback(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "import random; random.seed(7); random.gauss(0, 1)")
        await session.checkpoint()
        drawn = "[random.random(), random.gauss(0, 1), random.gauss(0, 1)]"
        expected = await out(session, drawn)
        for _ in range(2):
            await session.rollback()
            assert await out(session, drawn) == expected

    async def test_rollback_works_after_the_interpreter_was_killed(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint=False)
        await out(executor, "x = 1")
        await executor.checkpoint()
        assert (await run(executor, "import os; os._exit(1)")).state == "lost"
        await executor.rollback()
        assert await out(executor, "x") == "1\n"

    async def test_rollback_leaves_no_process_behind(self, session: DockerCommandLineCodeExecutor) -> None:
        await session.checkpoint()
        await session.rollback()
        before = int(await out(session, PROCESSES))
        for number in range(40):
            await session.checkpoint()
            await out(session, f"x = {number}")
            await session.rollback()
        assert int(await out(session, PROCESSES)) <= before + 1

    async def test_rollback_kills_processes_started_since(self, session: DockerCommandLineCodeExecutor) -> None:
        await session.checkpoint()
        await out(
            session,
            "import subprocess; p = subprocess.Popen(['sleep', '300']); open('/tmp/pid', 'w').write(str(p.pid))",
        )
        await session.rollback()
        assert await out(session, "kill -0 $(cat /tmp/pid) 2>/dev/null || echo gone", "sh") == "gone\n"


class TestRefusal:
    async def test_rollback_is_refused_without_a_checkpoint(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        with pytest.raises(ValueError, match=r"no checkpoint: call checkpoint\(\) first"):
            await executor.rollback()
        assert await out(executor, "1") == "1\n"

    async def test_rollback_is_refused_while_a_block_runs(self, session: DockerCommandLineCodeExecutor) -> None:
        code = "import os, time\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)\n'ended'"
        running = asyncio.ensure_future(run(session, code))
        await asyncio.sleep(0.2)
        for call in (session.checkpoint, session.rollback):
            with pytest.raises(ValueError, match="a block is running"):
                await call()
        await session.upload(Path(__file__), "go")
        assert (await running).value_repr == "'ended'"

    async def test_rollback_is_refused_after_code_has_killed_the_checkpoint(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        await executor.checkpoint()
        await out(executor, "import os; os.kill(-1, 9); x = 1")
        await asyncio.sleep(2)  # dying takes a moment
        with pytest.raises(ValueError, match="no checkpoint"):
            await executor.rollback()
        assert await out(executor, "x") == "1\n"
        await executor.checkpoint()
        await executor.rollback()

    async def test_blocks_sent_at_the_same_time_are_not_refused(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "n = 0")
        calls = []
        for _ in range(20):
            calls += [session.checkpoint(), run(session, "n += 1")]
        results = await asyncio.gather(*calls, return_exceptions=True)
        # A request for a checkpoint while a block runs is refused, and nothing waits for ever.
        assert all(result is None or isinstance(result, ValueError) for result in results[::2]), results
        assert await out(session, "n") == "20\n"


class TestSleepingCheckpoint:
    """It is a fork, so whatever it kept open would stay open for others."""

    async def test_sleeping_checkpoint_closes_pipes_and_sockets(self, session):
        await out(session, "import subprocess; cat = subprocess.Popen(['cat'], stdin=-1, stdout=-1, text=True)")
        await out(session, "import socket; a, b = socket.socketpair(); b.settimeout(5)")
        await out(session, "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()")
        await session.checkpoint()
        assert await out(session, "cat.communicate('to the end')[0]") == "'to the end'\n"
        assert await out(session, "a.close(); b.recv(1)") == "b''\n"
        assert await out(session, "server.close(); socket.create_server(port).close()") == ""

    async def test_sleeping_checkpoint_keeps_open_files_and_their_positions(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        await out(
            executor, "import os; log = open('/tmp/log', 'w+'); print('one', file=log, flush=True); r, w = os.pipe()"
        )
        assert (await run(executor, "os._exit(1)")).state == "restored"
        assert await out(executor, "print('two', file=log, flush=True); open('/tmp/log').read()") == "'one\\ntwo\\n'\n"
        # The pipe is as after the death of the one at its other end; its numbers are nobody else's.
        assert await out(executor, "os.read(r, 1)") == "b''\n"
        result = await run(executor, "os.write(w, b'x')")
        assert result.error.type == "BrokenPipeError"


PAUSE_S = 0.2
RESTORED = ("crashed", "restored")


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
