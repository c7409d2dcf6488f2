"""What a block of a session starts goes on working in later blocks: threads, pools, processes, loops."""

import asyncio

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.sandbox.sandboxes import mark_is_kept, out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestProcessesAndThreads:
    async def test_child_process_keeps_working_in_later_blocks(self, session: DockerCommandLineCodeExecutor) -> None:
        start = "import subprocess; cat = subprocess.Popen(['cat'], stdin=-1, stdout=-1, text=True, bufsize=1)"
        await out(session, start)
        for word in ("one", "two"):
            code = f"cat.stdin.write({word!r} + '\\n'); print(cat.poll(), cat.stdout.readline().strip())"
            assert (await out(session, code)).splitlines()[0] == f"None {word}"
        assert (
            await out(session, "cat.communicate('hello', timeout=5)[0], cat.wait(), cat.poll()") == "('hello', 0, 0)\n"
        )

    async def test_a_process_pool_and_a_multiprocessing_queue(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(
            session,
            """
            import multiprocessing
            context = multiprocessing.get_context("fork")
            def square(n): return n * n
            queue = context.Queue()
            pool = context.Pool(2)
            """,
        )
        for _ in range(2):
            assert await out(session, "pool.map(square, range(5))") == "[0, 1, 4, 9, 16]\n"
        await out(session, "child = context.Process(target=queue.put, args=('from the child',)); child.start()")
        assert (
            await out(session, "queue.get(timeout=5), child.join(5), child.exitcode") == "('from the child', None, 0)\n"
        )
        await out(session, "pool.terminate(); pool.join()")

    async def test_an_event_loop_in_a_thread(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(
            session,
            """
            import asyncio, threading
            loop = asyncio.new_event_loop()
            runner = threading.Thread(target=loop.run_forever, daemon=True); runner.start()
            async def add(a, b):
                await asyncio.sleep(0.01)
                return a + b
            """,
        )
        for number in range(3):
            code = f"asyncio.run_coroutine_threadsafe(add(2, {number}), loop).result(5)"
            assert await out(session, code) == f"{2 + number}\n"
        await out(session, "loop.call_soon_threadsafe(loop.stop); runner.join(); loop.close()")

    async def test_fork_that_returns_does_not_become_a_second_session(self, known):
        code = """
            import os
            pid = os.fork()
            print("child" if pid == 0 else ("parent", os.waitpid(pid, 0))[0], flush=True)
            if pid == 0: 1 / 0
        """
        result = await run(known, code)
        assert result.outcome == "ok"
        assert sorted(line for line in result.output.splitlines() if line in {"child", "parent"}) == ["child", "parent"]
        assert await mark_is_kept(known)

    async def test_waiting_for_all_children_ends(self, session: DockerCommandLineCodeExecutor) -> None:
        """The checkpoint is a child too, and must be seen by none of these."""
        code = """
            import os, time
            def start(seconds, code):
                pid = os.fork()
                if pid == 0:
                    time.sleep(seconds); os._exit(code)
                return pid
            for wait in (os.wait, lambda: os.waitpid(-1, 0), lambda: os.wait3(0)[:2], lambda: os.wait4(-1, 0)[:2]):
                started = {start(0.1, 1), start(0, 2), start(0.05, 3)}
                ended = []
                while True:
                    try:
                        ended.append(wait())
                    except ChildProcessError:
                        break
                print({pid for pid, _ in ended} == started, sorted(status >> 8 for _, status in ended))
            pid = start(0.1, 7)
            print(os.waitpid(-1, os.WNOHANG), os.wait3(os.WNOHANG)[:2], os.waitpid(pid, 0)[1] >> 8)
            try: os.waitpid(-1, os.WNOHANG)
            except ChildProcessError as error: print(error)
        """
        assert await out(session, code) == "True [1, 2, 3]\n" * 4 + "(0, 0) (0, 0) 7\n[Errno 10] No child processes\n"

    async def test_an_alarm_between_two_blocks_interrupts_neither(self, known: DockerCommandLineCodeExecutor) -> None:
        code = """
            import signal
            def ring(*_): raise TimeoutError("too slow")
            signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.1)
        """
        await out(known, code)
        await asyncio.sleep(0.3)
        assert await mark_is_kept(known)

    async def test_a_hundred_blocks_leave_no_process_behind(self, session: DockerCommandLineCodeExecutor) -> None:
        count = "import os; len([name for name in os.listdir('/proc') if name.isdigit()])"
        before = int(await out(session, count))
        for number in range(100):
            await out(session, f"n = {number}")
        assert int(await out(session, count)) <= before + 1
        assert await out(session, "echo shell", "sh") == "shell\n"
