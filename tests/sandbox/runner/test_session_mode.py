"""Session mode: one interpreter lives on, with its shells and with what blocks have started."""

import asyncio

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.cases import case
from tests.sandbox.sandboxes import out, run, short_result

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestNamespace:
    async def test_variables_functions_and_classes_persist(self, session):
        await out(session, "import math\ndef area(r): return math.pi * r * r\nclass Point: pass\np = Point()")
        assert await out(session, "round(area(2), 3), type(p) is Point, __name__") == "(12.566, True, '__main__')\n"

    async def test_last_bare_expression_is_shown(self, session):
        for code, output, value in [
            ("1 + 1", "2\n", "2"),
            ("x = 5", "", None),
            ("None", "", None),
            ("print('a')", "a\n", None),
            ("print('a'); 'b'", "a\n'b'\n", "'b'"),
            ("1\n2\n3", "3\n", "3"),
            ("if True:\n    7", "", None),
            ("'a' 'b'\n# a comment", "'ab'\n", "'ab'"),
            ("", "", None),
            ("# only a comment", "", None),
            ("'\ud800'", "'?'\n", "'?'"),
            ("'\\ud800\\x00'", "'\\ud800\\x00'\n", "'\\ud800\\x00'"),
        ]:
            with case(code, output, value):
                result = await run(session, code)
                assert (result.outcome, result.output, result.value_repr) == ("ok", output, value)

    async def test_exception_keeps_earlier_effects_of_its_block(self, session):
        result = await run(session, "before = 1\nprint('printed')\nraise KeyError('k')\nafter = 2")
        assert (result.outcome, result.exit_code, result.state) == ("error", 1, "kept")
        assert (result.error.type, result.error.message, result.error.line) == ("KeyError", "'k'", 3)
        assert result.output.startswith('printed\nTraceback (most recent call last):\n  File "<block ')
        assert "raise KeyError('k')" in result.output
        assert await out(session, "before, 'after' in globals()") == "(1, False)\n"

    async def test_message_of_a_syntax_error_has_neither_file_nor_line(self, session):
        for code in ("x = (", "import x y", "if True:\nprint()"):
            result = await run(session, code)
            assert "<block" not in result.error.message
            assert result.output.endswith(f"Error: {result.error.message}\n")

    async def test_carets_mark_the_failing_expression(self, session):
        for end in ["", "\n", "\n\n", "  # é"]:
            with case(end):
                result = await run(session, f"page = 'a\\x0cb'\nzero = 0\n1 / zero{end}")
                _, _, line, carets, _ = result.output.splitlines()
                assert (line, carets) == (f"    1 / zero{end.rstrip()}", "    ~~^~~~~~")

    async def test_error_with_hostile_attributes_is_a_result(self, session):
        lies = """
        class Liar(SyntaxError):
            msg = filename = lineno = property(lambda self: 1 / 0)
        raise Liar("told")
        """
        result = await run(session, lies)
        assert (result.outcome, result.state) == ("error", "kept")
        assert (result.error.type, result.error.line) == ("Liar", 3)

    async def test_traceback_shows_lines_of_earlier_blocks(self, session):
        await out(session, "def fails():\n    return 1 / 0  # the culprit")
        result = await run(session, "fails()")
        assert "return 1 / 0  # the culprit" in result.output
        assert result.error.line == 1

    async def test_block_with_a_file_name_is_saved_and_runs_in_the_session(self, session):
        result = await run(
            session, "# filename: sub/named.py\nshared = 'yes'\n__file__ if '__file__' in globals() else None"
        )
        assert result.outcome == "ok"
        assert await out(session, "shared, open('/workspace/sub/named.py').read()[:12]") == "('yes', '# filename: ')\n"


class TestStreams:
    async def test_output_and_errors_keep_their_order(self, session):
        code = """
            import sys, os
            for n in range(3):
                print(n)
                print(-n, file=sys.stderr)
            os.system('echo sub')
            print('end')
        """
        assert await out(session, code) == "0\n0\n1\n-1\n2\n-2\nsub\nend\n"

    # Case 19.
    async def test_output_of_a_thread_between_two_blocks_is_in_the_notes(self, session):
        await out(session, "import threading; timer = threading.Timer(0.2, print, ['between']); timer.start()")
        await asyncio.sleep(1)
        result = await run(session, "print('mine')")
        assert result.output == "mine\n"
        assert result.notes == ("Written meanwhile by threads of earlier blocks: between\n",)

    async def test_output_of_a_thread_of_this_block_is_in_its_output(self, session):
        code = """
            import sys
            from concurrent.futures import ThreadPoolExecutor
            pool = globals().get("pool") or ThreadPoolExecutor(2)
            print(sorted(pool.map(lambda n: (sys.stdout.write("in pool" + chr(10)), n)[1], range(2))))
        """
        for _ in range(2):
            assert (await out(session, code)) == "in pool\nin pool\n[0, 1]\n"
        await out(session, "pool.shutdown()")

    async def test_process_started_by_a_shell_keeps_running(self, session):
        await out(session, "sleep 100 & echo $! > /tmp/pid; exit 0", "sh")
        assert await out(session, "kill -0 $(cat /tmp/pid) && echo alive; kill -9 $(cat /tmp/pid)", "sh") == "alive\n"


class TestConcurrentCalls:
    async def test_waiting_does_not_count_as_execution_time(self, make_executor):
        executor = await make_executor(mode="session", timeout=2)
        results = await asyncio.gather(*(run(executor, f"import time; time.sleep(0.7); {n}") for n in range(4)))
        assert [short_result(result) for result in results] == [("ok", 0, f"{n}\n") for n in range(4)]


class TestShells:
    @pytest_asyncio.fixture(loop_scope="module")
    async def home(self, session: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
        await out(session, "mkdir -p /workspace/a/b && cd /workspace", "sh")
        return session

    @pytest.mark.parametrize("language", ["sh", "bash"])
    async def test_shells_share_directory_and_exports_with_python_both_ways(self, home, language):
        await out(home, "cd a/b; export GREETING='hello\nworld = 1' EMPTY=; local=hidden", language)
        assert (
            await out(home, 'pwd; echo "$GREETING|$EMPTY|$local"', language) == "/workspace/a/b\nhello\nworld = 1||\n"
        )
        code = "import os\nos.getcwd(), os.environ['GREETING'], os.environ['EMPTY'], 'local' in os.environ"
        assert await out(home, code) == "('/workspace/a/b', 'hello\\nworld = 1', '', False)\n"
        await out(home, "os.chdir('..'); os.environ['GREETING'] = 'from python'; del os.environ['EMPTY']")
        assert await out(home, 'pwd; echo "$GREETING|${EMPTY-unset}"', language) == "/workspace/a\nfrom python|unset\n"
        await out(home, "unset GREETING; cd /workspace", language)
        assert await out(home, "'GREETING' in os.environ, os.getcwd()") == "(False, '/workspace')\n"

    async def test_too_large_environment_is_reported(self, home: DockerCommandLineCodeExecutor) -> None:
        result = await run(home, "import os; os.environ['HUGE'] = 'x' * 5_000_000; 'set'")
        assert (result.output, result.state) == ("'set'\n", "kept")
        assert "too large" in result.notes[0]
        assert await out(home, "echo ${HUGE-unset}", "sh") == "unset\n"
        await out(home, "del os.environ['HUGE']")
        # What the system's own call refuses is a result.
        await out(home, "os.environ['LONG'] = 'x' * 200_000")
        result = await run(home, "echo", "sh")
        assert (result.outcome, result.exit_code) == ("error", 126)
        await out(home, "del os.environ['LONG']")

    async def test_garbage_on_the_state_descriptor_harms_nothing(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "import os; kept = dict(os.environb)")
        await run(home, r"printf '/nonexistent\0=x\0=\0A\0B=1\0\377\376=\377\0' >/proc/self/fd/100; \trap - EXIT", "sh")
        assert (await out(home, "import os; os.environ.get('B'), os.environb.get(b'\\xff\\xfe')")).endswith(
            "('1', b'\\xff')\n"
        )
        assert (await out(home, "echo shell", "sh")).endswith("shell\n")
        # The other tests need what it has replaced.
        await out(home, "os.chdir('/workspace'); os.environb.clear(); os.environb.update(kept)")


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
        assert await out(known, "mark") == "['set']\n"

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
        assert await out(known, "mark") == "['set']\n"
