"""Session mode: one interpreter lives on, shells share its place, and what breaks it costs one block at most."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from autogen_core import CancellationToken

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutionResult, Limits

from .conftest import MakeExecutor
from .sandboxes import FORGE, block, out, run, told

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(sandbox_image: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    async with DockerCommandLineCodeExecutor(mode="session", timeout=10) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def known(session: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
    """The session with a variable to look for afterwards, in its own directory, with its own environment."""
    await out(session, "import os; os.chdir('/workspace'); mark = ['set']")
    return session


async def mark_is_kept(session: DockerCommandLineCodeExecutor) -> bool:
    return await out(session, "mark") == "['set']\n"


class TestTheNamespace:
    async def test_lives_on(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "import math\ndef area(r): return math.pi * r * r\nclass Point: pass\np = Point()")
        assert await out(session, "round(area(2), 3), type(p) is Point, __name__") == "(12.566, True, '__main__')\n"

    @pytest.mark.parametrize(
        ("code", "output", "value"),
        [
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
        ],
    )
    async def test_shows_a_last_bare_expression(
        self, session: DockerCommandLineCodeExecutor, code: str, output: str, value: str | None
    ) -> None:
        result = await run(session, code)
        assert (result.outcome, result.output, result.value) == ("ok", output, value)

    async def test_keeps_it_as_underscore(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "6 * 7")
        await out(session, "None")
        assert await out(session, "_ + 1") == "43\n"

    async def test_an_exception_keeps_what_came_before_it(self, session: DockerCommandLineCodeExecutor) -> None:
        result = await run(session, "before = 1\nprint('printed')\nraise KeyError('k')\nafter = 2")
        assert (result.outcome, result.exit_code, result.state) == ("error", 1, "kept")
        assert result.error is not None
        assert (result.error.type, result.error.message, result.error.line) == ("KeyError", "'k'", 3)
        assert result.output.startswith('printed\nTraceback (most recent call last):\n  File "<block ')
        assert "raise KeyError('k')" in result.output
        assert await out(session, "before, 'after' in globals()") == "(1, False)\n"

    async def test_a_syntax_error_is_shown_as_python_shows_it(self, session: DockerCommandLineCodeExecutor) -> None:
        result = await run(session, "x = 1\nprint('a'")
        assert result.error is not None
        assert (result.error.type, result.error.line) == ("SyntaxError", 2)
        first, *_, last = result.output.splitlines()
        assert first.startswith('  File "<block ')
        assert first.endswith(", line 2")
        assert last.startswith("SyntaxError: ")

    async def test_a_traceback_shows_lines_of_earlier_blocks(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "def fails():\n    return 1 / 0  # the culprit")
        result = await run(session, "fails()")
        assert "return 1 / 0  # the culprit" in result.output
        assert result.error is not None
        assert result.error.line == 1

    async def test_works_for_pickle_dataclasses_and_annotations(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(
            session,
            """
            import dataclasses, pickle, typing
            @dataclasses.dataclass
            class Row:
                n: int
                next: typing.Optional["Row"] = None
            """,
        )
        assert await out(session, "pickle.loads(pickle.dumps(Row(3))), typing.get_type_hints(Row)['n']") == (
            "(Row(n=3, next=None), <class 'int'>)\n"
        )

    async def test_with_a_file_name_is_saved_and_runs_in_the_session(
        self, session: DockerCommandLineCodeExecutor
    ) -> None:
        result = await run(
            session, "# filename: sub/named.py\nshared = 'yes'\n__file__ if '__file__' in globals() else None"
        )
        assert result.outcome == "ok"
        assert await out(session, "shared, open('/workspace/sub/named.py').read()[:12]") == "('yes', '# filename: ')\n"

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("import sys; sys.exit()", ("ok", 0, "")),
            ("import sys; sys.exit(3)", ("error", 3, "")),
            ("import sys; sys.exit('words')", ("error", 1, "words\n")),
            ("raise SystemExit(4)", ("error", 4, "")),
            ("quit(2)", ("error", 2, "")),
            ("raise KeyboardInterrupt", ("error", 130, None)),
            ("raise GeneratorExit", ("error", 1, None)),
            ("class E(BaseException):\n    def __str__(self): raise ValueError\nraise E", ("error", 1, None)),
            ("class R:\n    def __repr__(self): raise ValueError('no')\nR()", ("error", 1, None)),
            ("class R:\n    __repr__ = lambda self: 3\nR()", ("error", 1, None)),
            (
                "class S(str):\n    __getitem__ = None\nclass R:\n    __repr__ = lambda self: S('odd')\nR()",
                ("ok", 0, "odd\n"),
            ),
            ("import sys; sys.excepthook = None; 1 / 0", ("error", 1, None)),
            ("x = '\0'", ("error", 1, None)),
        ],
    )
    async def test_survives(
        self, known: DockerCommandLineCodeExecutor, code: str, verdict: tuple[str, int, str | None]
    ) -> None:
        result = await run(known, code)
        assert (result.outcome, result.exit_code) == verdict[:2], result
        assert verdict[2] is None or result.output == verdict[2]
        assert result.state == "kept"
        await run(known, "import sys; sys.excepthook = sys.__excepthook__")
        assert await mark_is_kept(known)

    async def test_a_huge_value_is_cut_and_the_output_capped(self, session: DockerCommandLineCodeExecutor) -> None:
        result = await run(session, "'x' * 5_000_000")
        assert result.value == "'" + "x" * (64 * 1024 - 1)
        assert result.truncated == 5_000_003 - 1024 * 1024
        assert result.output.startswith("'xxx")
        assert result.output.endswith("xxx'\n")


class TestTheStreams:
    @pytest.mark.parametrize(
        "code",
        [
            "import sys, io; sys.stdout = io.StringIO()",
            "import sys; sys.stdout = sys.stderr = None",
            "import sys; del sys.stdout",
            "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
            "import sys; raw = sys.stdout.detach()",
            "import os; os.close(0); os.close(1); os.close(2)",
            "import os; os.close(1)",
            "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
            "import builtins; builtins.open = builtins.len = builtins.repr = None",
            "import sys, json; sys.modules['json'] = None; json.dumps = json.loads = json.JSONEncoder = None",
            "import sys; sys.modules['os'] = sys.modules['sys'] = None",
            "import linecache, traceback; linecache.cache = None",
        ],
    )
    async def test_are_sane_in_the_next_block_whatever_this_one_does(
        self, make_executor: MakeExecutor, code: str
    ) -> None:
        executor = await make_executor(mode="session", timeout=10)
        await out(executor, "mark = 1")
        assert (await run(executor, code)).outcome == "ok"
        result = await run(executor, "print('next'); mark")
        assert (result.outcome, result.output, result.state) == ("ok", "next\n1\n", "kept")

    async def test_keep_the_order_of_output_and_errors(self, session: DockerCommandLineCodeExecutor) -> None:
        code = """
            import sys, os
            for n in range(3):
                print(n)
                print(-n, file=sys.stderr)
            os.system('echo sub')
            print('end')
        """
        assert await out(session, code) == "0\n0\n1\n-1\n2\n-2\nsub\nend\n"

    async def test_can_be_split(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", split_streams=True)
        code = "import sys\nprint('out'); print('err', file=sys.stderr); 'value'"
        result = await run(executor, code)
        assert (result.stdout, result.stderr, result.output) == ("out\n'value'\n", "err\n", "out\n'value'\nerr\n")
        shell = await run(executor, "echo out; echo err >&2", "sh")
        assert (shell.stdout, shell.stderr) == ("out\n", "err\n")
        # Each has its own cap.
        flood = "import sys\nfor stream in (sys.stdout, sys.stderr): stream.write(('x' * 99 + '\\n') * 20000)"
        result = await run(executor, flood)
        assert result.truncated == 2 * (2_000_000 - 1024 * 1024)
        await run(executor, "import os; os.close(0); os.close(1); os.close(2)")
        result = await run(executor, code)
        assert (result.stdout, result.stderr) == ("out\n'value'\n", "err\n")

    async def test_nothing_can_be_read(self, session: DockerCommandLineCodeExecutor) -> None:
        result = await run(session, "input('name? ')")
        assert result.error is not None
        assert result.error.type == "EOFError"

    async def test_a_late_thread_writes_into_the_notes(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(
            session,
            """
            import threading, time
            go, done = threading.Event(), threading.Event()
            def talk():
                for number in range(3):
                    go.wait(5); print("late", number)
                done.set()
            thread = threading.Thread(target=talk); thread.start()
            """,
        )
        result = await run(session, "go.set(); done.wait(5); print('mine')")
        assert result.output == "mine\n"
        assert result.notes == ("Written meanwhile by threads of earlier blocks: late 0\nlate 1\nlate 2\n",)
        await out(session, "thread.join()")

    async def test_so_does_one_that_writes_between_two_blocks(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "import threading; timer = threading.Timer(0.2, print, ['between']); timer.start()")
        await asyncio.sleep(0.5)
        result = await run(session, "print('mine')")
        assert result.output == "mine\n"
        assert result.notes == ("Written meanwhile by threads of earlier blocks: between\n",)

    async def test_a_thread_of_this_block_writes_into_its_output(self, session: DockerCommandLineCodeExecutor) -> None:
        code = """
            import sys
            from concurrent.futures import ThreadPoolExecutor
            pool = globals().get("pool") or ThreadPoolExecutor(2)
            print(sorted(pool.map(lambda n: (sys.stdout.write("in pool" + chr(10)), n)[1], range(2))))
        """
        for _ in range(2):
            assert (await out(session, code)) == "in pool\nin pool\n[0, 1]\n"
        await out(session, "pool.shutdown()")

    async def test_a_daemon_that_holds_them_open_holds_nobody_up(self, session: DockerCommandLineCodeExecutor) -> None:
        code = "import subprocess; p = subprocess.Popen(['sh', '-c', 'sleep 0.3; while :; do echo flood; done']); print('ready')"
        assert await out(session, code) == "ready\n"
        await asyncio.sleep(0.4)
        assert await out(session, "print('next')") == "next\n"
        # It goes on writing, and is neither stopped nor heard.
        assert await out(session, "import time; time.sleep(0.2); print(p.poll()); p.kill(); p.wait()") == "None\n-9\n"

    async def test_one_started_by_a_shell_lives_on_too(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "sleep 100 & echo $! > /tmp/pid; exit 0", "sh")
        assert await out(session, "kill -0 $(cat /tmp/pid) && echo alive; kill -9 $(cat /tmp/pid)", "sh") == "alive\n"


class TestWhatABlockStarts:
    async def test_a_thread_pool_and_a_process_go_on(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(
            session,
            """
            import subprocess
            from concurrent.futures import ThreadPoolExecutor
            workers = ThreadPoolExecutor(2)
            list(workers.map(abs, [-1]))
            cat = subprocess.Popen(["cat"], stdin=-1, stdout=-1, text=True)
            """,
        )
        code = "list(workers.map(abs, [-2, -3])), cat.communicate('hello', timeout=5)[0], cat.wait()"
        assert await out(session, code) == "([2, 3], 'hello', 0)\n"
        await out(session, "workers.shutdown()")

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
        assert await out(session, "asyncio.run_coroutine_threadsafe(add(2, 3), loop).result(5)") == "5\n"
        await out(session, "loop.call_soon_threadsafe(loop.stop); runner.join(); loop.close()")

    async def test_a_fork_that_comes_back_does_not_become_a_second_session(
        self, known: DockerCommandLineCodeExecutor
    ) -> None:
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
                print({pid for pid, _ in ended} == started, [status >> 8 for _, status in ended])
            pid = start(0.1, 7)
            print(os.waitpid(-1, os.WNOHANG), os.wait3(os.WNOHANG)[:2], os.waitpid(pid, 0)[1] >> 8)
            try: os.waitpid(-1, os.WNOHANG)
            except ChildProcessError as error: print(error)
        """
        assert await out(session, code) == "True [2, 3, 1]\n" * 4 + "(0, 0) (0, 0) 7\n[Errno 10] No child processes\n"

    async def test_an_alarm_that_rings_between_blocks_is_nobodys(self, known: DockerCommandLineCodeExecutor) -> None:
        code = """
            import signal
            def ring(*_): raise TimeoutError("too slow")
            signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, 0.1)
        """
        await out(known, code)
        await asyncio.sleep(0.3)
        assert await mark_is_kept(known)

    async def test_hundreds_of_blocks_leave_no_process_behind(self, session: DockerCommandLineCodeExecutor) -> None:
        count = "import os; len([name for name in os.listdir('/proc') if name.isdigit()])"
        before = int(await out(session, count))
        for number in range(300):
            await out(session, f"n = {number}")
        assert int(await out(session, count)) <= before + 1
        assert await out(session, "echo shell", "sh") == "shell\n"


class TestShells:
    @pytest_asyncio.fixture(loop_scope="module")
    async def home(self, session: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
        await out(session, "mkdir -p /workspace/a/b && cd /workspace", "sh")
        return session

    @pytest.mark.parametrize("language", ["sh", "bash"])
    async def test_share_directory_and_exports_with_python_both_ways(
        self, home: DockerCommandLineCodeExecutor, language: str
    ) -> None:
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

    async def test_exported_functions_of_bash_too(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "twice() { echo $1$1; }; export -f twice", "bash")
        assert await out(home, "twice ab", "bash") == "abab\n"
        await out(home, "unset -f twice", "bash")

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("export KEPT=1; exit 3", ("error", 3, "")),
            ("export KEPT=1; exit 0; echo never", ("ok", 0, "")),
            ("set -e; export KEPT=1; false; echo never", ("error", 1, "")),
            ("set -eu; export KEPT=1; cat /nonexistent 2>/dev/null", ("error", 1, "")),
            ("export KEPT=1; kill -TERM $$", ("crashed", 143, "")),
            ("echo ' unfinished", ("error", 2, None)),
        ],
    )
    async def test_ends_as_it_says(
        self, home: DockerCommandLineCodeExecutor, code: str, verdict: tuple[str, int, str | None]
    ) -> None:
        result = await run(home, code)  # as Python: an error, and the session lives
        assert result.outcome == "error"
        result = await run(home, code, "sh")
        assert (result.outcome, result.exit_code) == verdict[:2], result
        assert verdict[2] is None or result.output == verdict[2]
        assert result.state == "kept"
        if "KEPT" in code and result.outcome != "crashed":
            assert await out(home, "echo $KEPT", "sh") == "1\n"
        await out(home, "unset KEPT; cd /workspace", "sh")

    async def test_survive_that_their_directory_is_removed(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "mkdir /workspace/gone; cd /workspace/gone; rmdir /workspace/gone", "sh")
        for _ in range(2):
            await out(home, "print('python')")
            await out(home, "echo shell", "sh")
        await out(home, "cd /workspace", "sh")
        await out(
            home, "import os; os.makedirs('/workspace/gone'); os.chdir('/workspace/gone'); os.rmdir('/workspace/gone')"
        )
        assert (await out(home, "echo shell", "bash")).endswith("shell\n")
        await out(home, "import os; os.chdir('/workspace')")

    async def test_survive_an_empty_path(self, home: DockerCommandLineCodeExecutor) -> None:
        path = (await out(home, "echo $PATH", "sh")).strip()
        await out(home, "export PATH=/nonexistent", "sh")
        assert await out(home, "import os; os.environ['PATH'], os.environ['HOME']") == "('/nonexistent', '/tmp/home')\n"
        assert (await run(home, "ls", "sh")).exit_code == 127
        await out(home, f"os.environ['PATH'] = {path!r}")
        assert await out(home, "echo $PATH", "sh") == path + "\n"

    async def test_take_a_large_environment(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "import os\nfor n in range(2000): os.environ[f'LARGE_{n}'] = 'ä' * 100")
        assert await out(home, "env | grep -c ^LARGE_", "sh") == "2000\n"
        await out(home, "for n in $(seq 0 1999); do unset LARGE_$n; done", "bash")
        assert await out(home, "sum(name.startswith('LARGE_') for name in os.environ)") == "0\n"

    async def test_say_so_when_it_is_too_large_to_share(self, home: DockerCommandLineCodeExecutor) -> None:
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

    async def test_with_garbage_on_its_state_descriptor_harms_nobody(self, home: DockerCommandLineCodeExecutor) -> None:
        await run(home, r"printf '/nonexistent\0=x\0=\0A\0B=1\0\377\376=\377\0' >&9; exec 9>&-", "sh")
        assert (await out(home, "import os; os.environ.get('B'), os.environb.get(b'\\xff\\xfe')")).endswith(
            "('1', b'\\xff')\n"
        )
        assert (await out(home, "echo shell", "sh")).endswith("shell\n")
        await out(home, "import os; os.chdir('/workspace')")

    async def test_a_timeout_leaves_the_interpreter_alone(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", timeout=0.5)
        await out(executor, "mark = 1")
        result = await run(executor, "export NEW=1; sleep 60", "sh")
        assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "kept")
        assert await out(executor, "mark") == "1\n"
        assert await out(executor, "echo ${NEW-unset}", "sh") == "unset\n"


class TestWhatBreaksIt:
    """Each of these ends the interpreter; the variables of before the block are there again, and it is said."""

    @pytest.mark.parametrize(
        ("code", "outcome", "kind"),
        [
            ("import time; time.sleep(60)", "timeout", None),
            ("while True: pass", "timeout", None),
            ("9 ** 9 ** 9 ** 9", "timeout", None),
            ("import re; re.match(r'(a+)+$', 'a' * 64 + 'b')", "timeout", None),
            ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "timeout", None),
            ("import signal; signal.signal(15, signal.SIG_IGN); signal.pause()", "timeout", None),
            ("class R:\n    def __repr__(self):\n        while True: pass\nR()", "timeout", None),
            ("import os; os.kill(os.getpid(), 19)", "timeout", None),
            ("import os; os.kill(os.getpid(), 9)", "crashed", "SIGKILL"),
            ("import os; os.abort()", "crashed", "SIGABRT"),
            ("import ctypes; ctypes.string_at(0)", "crashed", "SIGSEGV"),
            ("import os; os._exit(0)", "crashed", "EarlyExit"),
            ("import os; os._exit(5)", "crashed", "EarlyExit"),
            ("import os; os.closerange(0, 1000)", "crashed", "EarlyExit"),
            ("import os, time; os.closerange(3, 1000); time.sleep(60)", "crashed", "ConnectionLost"),
            ("x = []\nwhile True: x.append(b'x' * 10_000_000)", "oom", "OutOfMemory"),
        ],
    )
    async def test(self, make_executor: MakeExecutor, code: str, outcome: str, kind: str | None) -> None:
        executor = await make_executor(mode="session", timeout=1.5, limits=Limits(memory="300m"))
        await out(executor, "import os; mark = ['set']; os.chdir('/tmp'); os.environ['BEFORE'] = '1'")
        result = await run(executor, "mark.append('lost'); os.environ['BEFORE'] = '2'; print('partial')\n" + code)
        assert (result.outcome, result.output, result.state) == (outcome, "partial\n", "restored"), result
        assert (result.error.type if result.error else None) == kind
        assert result.notes[-1] == "Files, threads and subprocesses are not restored."
        assert await out(executor, "mark, os.getcwd(), os.environ['BEFORE']") == "(['set'], '/tmp', '1')\n"
        assert await out(executor, "pwd; echo $BEFORE", "sh") == "/tmp\n1\n"
        # And again, from the interpreter that was asleep.
        result = await run(executor, "mark.append('lost'); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(executor, "mark") == "['set']\n"

    async def test_a_killed_child_is_its_own_affair(self, known: DockerCommandLineCodeExecutor) -> None:
        code = "import subprocess; subprocess.run(['sh', '-c', 'kill -9 $$']).returncode"
        assert await out(known, code) == "-9\n"
        assert await mark_is_kept(known)

    async def test_memory_that_a_child_takes_costs_the_child(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", timeout=20, limits=Limits(memory="300m"))
        code = "import subprocess, sys; mark = 1\nsubprocess.run([sys.executable, '-c', 'b = bytearray(10**9)']).returncode"
        result = await run(executor, code)
        assert (result.outcome, result.output, result.state) == ("ok", "-9\n", "kept"), result
        assert "memory limit was reached" in result.notes[0]
        assert await out(executor, "mark") == "1\n"

    async def test_without_checkpoints_it_is_lost(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint=False)
        await out(executor, "mark = 1")
        result = await run(executor, "import os; os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert result.notes == ("The session's variables are lost; a new, empty session has been started.",)
        assert (await run(executor, "mark")).outcome == "error"

    async def test_a_lost_session_keeps_the_place(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint=False)
        await out(executor, "cd /tmp; export PLACE=kept", "sh")
        await out(executor, "import os; os.getcwd()")
        await run(executor, "os._exit(1)")
        assert await out(executor, "import os; os.getcwd(), os.environ['PLACE']") == "('/tmp', 'kept')\n"

    async def test_a_large_heap_has_no_checkpoint_and_says_so(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", limits=Limits(memory="300m"))
        await out(executor, "heap = b'x' * (160 << 20)")
        result = await run(executor, "import os; os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert result.notes[0] == "No checkpoint was kept: the session uses nearly half of the memory limit."


class TestCodeThatTurnsOnTheSandbox:
    async def test_by_signals_to_all_keeps_the_session(self, known: DockerCommandLineCodeExecutor) -> None:
        for number in (2, 15, 19, 9):
            assert await out(known, f"import os; os.kill(-1, {number}); 'done'") == "'done'\n"
            assert await mark_is_kept(known)
            assert await out(known, "echo shell", "sh") == "shell\n"

    async def test_that_kills_its_checkpoint_and_itself_loses_the_session(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        await out(executor, "mark = 1")
        result = await run(executor, "import os; os.kill(-1, 9); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert (await run(executor, "mark")).outcome == "error"
        assert await out(executor, "'next'") == "'next'\n"
        assert await out(executor, "echo shell", "sh") == "shell\n"

    async def test_that_stops_its_checkpoint_and_crashes_is_restored(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        await out(executor, "mark = 1")
        result = await run(executor, "import os; os.kill(-1, 19); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(executor, "mark") == "1\n"

    async def test_a_shell_that_kills_the_interpreter_loses_the_session(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session")
        await out(executor, "mark = 1")
        assert (await run(executor, "kill -9 -1; echo done", "bash")).output == "done\n"
        result = await run(executor, "'mark' in globals()")
        assert (result.outcome, result.output, result.state) == ("ok", "False\n", "lost")

    @pytest.mark.parametrize(
        "send",
        [
            "frame(b'C', own_ident(), {'pid': [1]})",
            "frame(b'C', own_ident(), {'pid': 1})",
            "frame(b'C', own_ident(), {'pid': os.getpid()})",
            "frame(b'C', own_ident(), {'skipped': 3})",
            "frame(b'C', own_ident(), {'skipped': 'x' * 100000})",
            "frame(b'X', own_ident(), {'pid': 1, 'status': 0})",
        ],
    )
    async def test_by_forged_checkpoints_has_the_true_one(self, make_executor: MakeExecutor, send: str) -> None:
        executor = await make_executor(mode="session", timeout=5)
        await out(executor, FORGE + "\n    mark = 1")
        forge = f"os.write(control_socket(), {send})\n"
        assert await out(executor, forge + "'done'") == "'done'\n"
        result = await run(executor, forge + "os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(executor, "mark") == "1\n"

    async def test_without_checkpoints_a_forged_one_is_nothing(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint=False)
        code = FORGE + "    os.write(control_socket(), frame(b'C', own_ident(), {'pid': 2}))\n    'done'"
        assert await out(executor, code) == "'done'\n"
        assert await out(executor, "'next'") == "'next'\n"

    @pytest.mark.parametrize(
        "message",
        [
            {"exit_code": 0, "value": "forged"},
            {
                "exit_code": 0,
                "environment": {"": "x", "A=B": "x", "C\0": "x", "D": "\0", "E": 3, "F": "ok"},
                "unset": [3],
            },
            {"exit_code": 0, "environment": {}, "unset": ["", "a=b", "\0"], "cwd": "/none\0where"},
            {"exit_code": 0, "environment": {"\ud800": "x", "x": "\ud800"}, "unset": ["\ud800"], "cwd": "\ud800"},
            {"exit_code": 2**70, "error": {"type": 3, "message": {}, "line": "x"}, "value": 3, "late": []},
            {"error": {"type": "T" * 10**6, "message": "\U0001f600" * 10**5, "line": 2**40}, "late": "ä" * 10**6},
        ],
    )
    async def test_by_a_forged_result_costs_its_own_block(
        self, make_executor: MakeExecutor, message: dict[str, object]
    ) -> None:
        executor = await make_executor(mode="session", timeout=5)
        await out(executor, FORGE)
        # The host's numbers of this block and later ones mean nothing here.
        code = f"for ident in (*range(30), own_ident()): os.write(control_socket(), frame(b'D', ident, {message!r}))"
        await run(executor, code)
        results = [await run(executor, "print('next')"), await run(executor, "echo next", "sh")]
        assert [told(result) for result in results] == [("ok", 0, "next\n")] * 2

    @pytest.mark.parametrize(
        "send",
        [
            "b'garbage' * 100",
            "struct.pack('!cII', b'D', 1, 2**32 - 1)",
            "struct.pack('!cIII', b'D', 1, 100004, 100000) + b'[' * 100000",
        ],
    )
    async def test_by_garbage_ends_at_once_and_is_restored(self, make_executor: MakeExecutor, send: str) -> None:
        executor = await make_executor(mode="session", timeout=30)
        await out(executor, FORGE + "\n    mark = 1")
        result = await run(executor, f"os.write(control_socket(), {send})\nimport time; time.sleep(60)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert result.error is not None
        assert result.error.type == "ConnectionLost"
        assert await out(executor, "mark") == "1\n"

    async def test_that_never_reads_a_large_block_ends_by_the_deadline(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", timeout=1)
        forge = "os.write(control_socket(), frame(b'D', own_ident(), {'exit_code': 0}))"
        await run(
            executor, FORGE + f"    {forge}\n    import time; time.sleep(60)"
        )  # ends by the forged word, while its code goes on
        result = await run(executor, "1\n" + "#" * 8_000_000)
        assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "lost")
        assert await out(executor, "'next'") == "'next'\n"


class TestCallsAtTheSameTime:
    async def test_run_one_after_the_other_in_order(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "order = []")
        calls = (
            run(session, f"order.append({n}); import time; time.sleep(0.01); order.append({n}); {n}") for n in range(20)
        )
        results = await asyncio.gather(*calls)
        assert [result.value for result in results] == [str(n) for n in range(20)]
        assert await out(session, "order == [n for n in range(20) for _ in range(2)]") == "True\n"

    async def test_the_blocks_of_one_call_stay_together(self, session: DockerCommandLineCodeExecutor) -> None:
        await out(session, "seen = []")
        call = [block("seen.append(0)"), block("true", "sh"), block("seen.append(1)")]

        async def execute() -> ExecutionResult:
            return await session.execute_code_blocks(call, CancellationToken())

        await asyncio.gather(*(execute() for _ in range(5)))
        assert await out(session, "seen") == f"{[0, 1] * 5}\n"

    async def test_waiting_for_the_turn_is_not_on_the_clock(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", timeout=1)
        results = await asyncio.gather(*(run(executor, f"import time; time.sleep(0.4); {n}") for n in range(5)))
        assert [told(result) for result in results] == [("ok", 0, f"{n}\n") for n in range(5)]
