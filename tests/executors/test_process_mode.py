"""Process mode: every block a fresh process, and nothing of it outlives it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from autogen_core import CancellationToken

from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits, SandboxStartError

from . import reused
from .conftest import MakeExecutor
from .sandboxes import FORGE, block, out, run, short_result, without_landlock

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGERS = """
    import os
    # Of the supervisor, the zygote and the worker ahead nobody can see the descriptors; of what blocks have left, one can.
    def alive(pid):
        # What has ended a moment ago may not be buried yet.
        try:
            return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and alive(name)]
    print(len(pids) <= 4, [pid for pid in pids if pid != os.getpid() and os.access(f"/proc/{pid}/fd", os.R_OK)])
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(sandbox_image: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    async with reused.executor(DockerCommandLineCodeExecutor, timeout=40) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exposed(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """A sandbox without Landlock, where a block can send signals to every process."""
    profile = without_landlock(tmp_path_factory.mktemp("profile"))
    async with DockerCommandLineCodeExecutor(timeout=40, seccomp=profile) as started:
        yield started


class TestScript:
    async def test_script_is_a_main_module_of_its_own(self, executor: DockerCommandLineCodeExecutor) -> None:
        output = await out(
            executor,
            """
            # filename: tool.py
            import os, sys
            print(__name__, __file__, sys.argv, sys.path[0], os.getcwd())
            print(sys.modules["__main__"].__dict__ is globals(), sorted(n for n in globals() if n[0] != "_"))
            """,
        )
        assert output == (
            "__main__ /workspace/tool.py ['/workspace/tool.py'] /workspace /workspace\nTrue ['os', 'sys']\n"
        )

    async def test_script_knows_nothing_of_the_block_before(self, executor: DockerCommandLineCodeExecutor) -> None:
        await out(executor, "import json, os; x = 1; json.mark = 1; os.environ['MARK'] = '1'; os.chdir('/tmp')")
        assert await out(
            executor,
            "import json, os; print('x' in globals(), hasattr(json, 'mark'), 'MARK' in os.environ, os.getcwd())",
        ) == ("False False False /workspace\n")

    async def test_script_shows_no_value_of_the_last_expression(self, executor: DockerCommandLineCodeExecutor) -> None:
        result = await run(executor, "1 + 1")
        assert (result.output, result.value, result.state) == ("", None, "kept")

    async def test_script_runs_its_exit_handlers_and_waits_for_its_threads(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        output = await out(
            executor,
            """
            import atexit, threading, time
            atexit.register(print, "handler")
            threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
            print("main", end=" ")
            """,
        )
        assert output == "main thread\nhandler\n"

    async def test_script_reports_what_it_raised(self, executor: DockerCommandLineCodeExecutor) -> None:
        result = await run(executor, "import math\n\nprint('first')\nmath.sqrt(-1)\n")
        assert (result.outcome, result.exit_code) == ("error", 1)
        assert result.error is not None
        assert (result.error.type, result.error.message, result.error.line) == ("ValueError", "math domain error", 4)
        assert result.output.startswith('first\nTraceback (most recent call last):\n  File "/workspace/tmp_code_')
        assert "codeact" not in result.output

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("import sys; sys.exit()", ("ok", 0, "")),
            ("import sys; sys.exit(0)", ("ok", 0, "")),
            ("import sys; sys.exit(3)", ("error", 3, "")),
            ("import sys; sys.exit(256 + 7)", ("error", 7, "")),
            ("import sys; sys.exit(True)", ("error", 1, "")),
            ("import sys; sys.exit('words')", ("error", 1, "words\n")),
            ("import sys; sys.exit([1])", ("error", 1, "[1]\n")),
            ("raise SystemExit(4)", ("error", 4, "")),
            ("class Odd:\n    __str__ = None\nraise SystemExit(Odd())", ("error", 1, "\n")),
            ("exit(5)", ("error", 5, "")),
            ("raise KeyboardInterrupt", ("error", 130, None)),
            ("import os; os._exit(0)", ("crashed", 1, "")),
            ("import os; os._exit(9)", ("crashed", 9, "")),
            ("import os; os.kill(os.getpid(), 9)", ("crashed", 137, "")),
            ("import os; os.abort()", ("crashed", 134, "")),
            ("import ctypes; ctypes.string_at(0)", ("crashed", 139, "")),
            ("import sys; sys.stdout.close()", ("ok", 0, "")),
            ("import os; [os.close(fd) for fd in (0, 1, 2)]", ("ok", 0, "")),
            ("import sys; del sys.stdout, sys.stderr", ("ok", 0, "")),
            ("import builtins; del builtins.print, builtins.__import__, builtins.len", ("ok", 0, "")),
            ("import sys, json; sys.modules['json'] = None; json.dumps = json.loads = None", ("ok", 0, "")),
        ],
    )
    async def test_script_ends_with_the_exit_code_of_sys_exit(
        self, executor: DockerCommandLineCodeExecutor, code: str, verdict: tuple[str, int, str | None]
    ) -> None:
        result = await run(executor, code)
        assert (result.outcome, result.exit_code) == verdict[:2], result
        assert verdict[2] is None or result.output == verdict[2]
        assert await out(executor, "print('next')") == "next\n"

    async def test_result_of_a_script_names_the_signal(self, executor: DockerCommandLineCodeExecutor) -> None:
        result = await run(executor, "import ctypes; ctypes.string_at(0)")
        assert result.error is not None
        assert result.error.type == "SIGSEGV"

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("x = '\0'", "SyntaxError"),
            ("print(", "SyntaxError"),
            ("# -*- coding: no-such-thing -*-\n", "SyntaxError"),
            ("type('N' * 10**7, (Exception,), {})('m' * 10**7).no", "AttributeError"),
        ],
    )
    async def test_script_that_can_not_run_is_an_error(
        self, executor: DockerCommandLineCodeExecutor, code: str, kind: str
    ) -> None:
        result = await run(executor, code)
        assert result.outcome == "error"
        assert result.error is not None
        # Python before 3.12 says ValueError of a NUL.
        assert result.error.type in {kind, "ValueError"}

    @pytest.mark.parametrize(
        ("code", "named"),
        [
            ("!echo hi", True),
            ("x = 1\n%time x", True),
            ("import asyncio\nawait asyncio.sleep(0)", True),
            ("import sys; sys.stderr = None; exec('!echo')\n", False),
            ("x = (1", False),
        ],
    )
    async def test_notebook_syntax_in_a_script_is_answered_with_a_hint_to_session_mode(
        self, executor: DockerCommandLineCodeExecutor, code: str, named: bool
    ) -> None:
        result = await run(executor, code)
        assert result.error is not None
        assert result.error.type == "SyntaxError"
        hint = "In process mode a block is a script. `!`, `%` and `await` outside of a function work in session mode.\n"
        assert result.output.endswith(hint) == named

    async def test_endless_recursion_of_a_script_is_an_error(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(timeout=50, limits=Limits(memory="128m"))
        # Which of the two limits comes first, the stack's or the memory's, is the interpreter's affair.
        result = await run(executor, "import sys; sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()")
        assert (result.outcome, result.exit_code) in {("crashed", 139), ("oom", 137)}

    async def test_endless_name_and_message_of_an_exception_are_cut(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        result = await run(executor, "raise type('N' * 10**7, (Exception,), {})('m' * 10**7)")
        assert result.error is not None
        assert (result.error.type, result.error.message) == ("N" * 200, "m" * 16 * 1024)

    async def test_script_with_lone_surrogates_runs(self, executor: DockerCommandLineCodeExecutor) -> None:
        assert await out(executor, "print('a\ud800b', '\\ud800', chr(0), b'\\xff')") == "a?b \\ud800 \0 b'\\xff'\n"

    async def test_script_of_8_mib_runs_and_a_larger_one_is_refused(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        room = 8 * 1024 * 1024 - 64 * 1024
        code = "print(1)\n"
        assert await out(executor, code + "#" * (room - len(code))) == "1\n"
        result = await run(executor, code + "#" * room)
        assert result.error is not None
        assert (result.outcome, result.error.type) == ("error", "CodeTooLarge")


class TestBlocksOfOneCall:
    async def test_blocks_of_one_call_stop_at_the_first_that_fails(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        blocks = [block("print(1)"), block("echo 2; exit 3", "sh"), block("print(4)")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert short_result(result) == ("error", 3, "1\n2\n")

    async def test_at_least_one_block_is_required(self, executor: DockerCommandLineCodeExecutor) -> None:
        with pytest.raises(ValueError, match="No code blocks"):
            await executor.execute_code_blocks([], CancellationToken())


class TestLeftoverProcesses:
    @pytest.mark.parametrize(
        ("language", "code"),
        [
            ("python", "import subprocess; subprocess.Popen(['sleep', '300'])"),
            ("python", "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"),
            ("python", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(300)"),
            (
                "python",
                "import signal, os, time\nif os.fork() == 0:\n    signal.signal(15, signal.SIG_IGN); time.sleep(300)",
            ),
            ("sh", "nohup sleep 300 &"),
            ("sh", "(setsid sleep 300 &) ; (sleep 300 &)"),
            ("bash", "trap '' TERM HUP INT; sleep 300 & disown"),
            (
                "python",
                # It gives up being the one that orphans go to, and a child becomes that.
                """
                import ctypes, os, time
                prctl = ctypes.CDLL(None).prctl
                assert prctl(36, 0, 0, 0, 0) == 0
                if os.fork() == 0:
                    assert prctl(36, 1, 0, 0, 0) == 0
                    if os.fork() == 0:
                        if os.fork() == 0:
                            time.sleep(300)
                        os._exit(0)
                    time.sleep(300)
                """,
            ),
            (
                "python",
                # Each process forks the next and exits at once: a list of processes is always out of date.
                """
                import os
                if os.fork() == 0:
                    os.setsid()
                    while True:
                        if os.fork():
                            os._exit(0)
                """,
            ),
            (
                "python",
                """
                import os, signal
                for number in range(3):
                    if os.fork() == 0:
                        while True:
                            try:
                                if os.fork(): os._exit(0)
                            except OSError: pass
                """,
            ),
        ],
    )
    async def test(self, executor: DockerCommandLineCodeExecutor, language: str, code: str) -> None:
        await run(executor, code, language)
        assert await out(executor, STRANGERS) == "True []\n"

    async def test_nothing_outlives_a_block_after_its_deadline(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(timeout=3)
        code = """
            import os, signal, time
            for number in range(1, 32):
                if number not in (9, 17, 19): signal.signal(number, signal.SIG_IGN)
            for _ in range(5):
                if os.fork() == 0:
                    os.setsid()
                    os.fork()
                    break
            while True: time.sleep(100)
        """
        assert (await run(executor, code)).outcome == "timeout"
        assert await out(executor, STRANGERS) == "True []\n"

    async def test_check_for_leftover_processes_finds_a_running_one(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        started = "    import subprocess; subprocess.Popen(['sleep', '9']); import time; time.sleep(0.1)\n"
        assert not (await out(executor, STRANGERS.replace("    # Of", started + "    # Of"))).endswith("[]\n")


class TestAttacksOnTheSandbox:
    """Without Landlock signals can be sent, since everything in it has the same user; what must hold is the next block."""

    @pytest.mark.parametrize(
        "code",
        [
            "import os; [os.kill(1, number) for number in range(1, 65)]",
            "import os; os.kill(-1, 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 19)",
            "import os; os.kill(os.getppid(), 2)",
        ],
    )
    async def test_code_that_sends_signals_ends_normally_and_the_next_block_runs(
        self, exposed: DockerCommandLineCodeExecutor, code: str
    ) -> None:
        assert short_result(await run(exposed, code + "\nprint('done')")) == ("ok", 0, "done\n")
        for _ in range(3):
            assert await out(exposed, "print('next')") == "next\n"

    async def test_code_that_stops_all_others_and_itself_ends_by_the_deadline(
        self, exposed: DockerCommandLineCodeExecutor
    ) -> None:
        exposed.sandbox.timeout = 3
        code = "import os; os.kill(-1, 19); os.kill(os.getpid(), 19)"
        assert (await run(exposed, code)).outcome == "timeout"
        exposed.sandbox.timeout = 40
        assert await out(exposed, "print('next')") == "next\n"

    async def test_code_can_not_read_the_supervisor_the_zygote_or_the_next_block(
        self, executor: DockerCommandLineCodeExecutor
    ) -> None:
        output = await out(
            executor,
            """
            import os
            for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
                if pid == os.getpid(): continue
                for name in ("environ", "mem", "maps", "stack", "auxv", "fd", "cwd", "exe", "fd/0", "fd/1", "fd/2"):
                    path = f"/proc/{pid}/{name}"
                    look = {"fd": os.listdir, "cwd": os.readlink, "exe": os.readlink}
                    try:
                        look.get(name, lambda path: open(path, "rb").read(1))(path)
                        print("can", path)
                    except OSError:
                        pass
            print("tried")
            """,
        )
        assert output == "tried\n"

    async def test_code_has_one_socket_and_no_other_way_out(self, executor: DockerCommandLineCodeExecutor) -> None:
        output = await out(
            executor,
            """
            import os
            for fd in sorted(os.listdir("/proc/self/fd"), key=int):
                try: print(os.readlink("/proc/self/fd/" + fd).split(":")[0])
                except OSError: pass
            """,
        )
        assert output == "/dev/null\npipe\npipe\nsocket\n"

    async def test_code_can_forge_its_own_result_and_no_other(self, executor: DockerCommandLineCodeExecutor) -> None:
        code = (
            FORGE
            + """
    for ident in (*range(1000), own_ident()):
        os.write(control_socket(), frame(b"D", ident, {"exit_code": 0, "value": "forged", "error": None}))
    raise ValueError("mine")
"""
        )
        forged = await run(executor, code)
        assert forged.outcome in {"ok", "error"}
        results = await asyncio.gather(*(run(executor, f"print({number})") for number in range(5)))
        assert [short_result(result) for result in results] == [("ok", 0, f"{number}\n") for number in range(5)]
        assert [result.value for result in results] == [None] * 5

    @pytest.mark.parametrize(
        "send",
        [
            "os.write(control_socket(), b'garbage' * 1000)",
            "os.write(control_socket(), struct.pack('!cII', b'D', 1, 2**32 - 1))",
            "os.write(control_socket(), frame(b'D', 1, {})[:-1])",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 8, 2**32 - 1) + b'x' * 4)",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 100004, 100000) + b'[' * 100000)",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 1000004, 1000000) + b'9' * 1000000)",
            "os.write(control_socket(), frame(b'?', 1, {}) * 1000)",
            "os.write(control_socket(), frame(b'C', own_ident(), {'pid': [1]}) + frame(b'S', 1, {'pid': 1}))",
            "os.write(control_socket(), frame(b'D', own_ident(), {'exit_code': 'x', 'error': [], 'value': {}, 'late': 3}))",
            "s = socket.socket(fileno=os.dup(control_socket())); socket.send_fds(s, [b'x'] * 1, [0, 1, 2] * 50)",
            "os.close(control_socket())",
        ],
    )
    async def test_code_that_misuses_its_socket_harms_only_itself(
        self, executor: DockerCommandLineCodeExecutor, send: str
    ) -> None:
        result = await run(executor, FORGE + f"    {send}\n    print('sent')\n")
        assert result.outcome in {"ok", "error", "crashed"}
        # Its own result it may forge; with that the block has ended.
        assert result.output == "sent\n" or "'D', own_ident()" in send
        assert await out(executor, "print('next')") == "next\n"

    @pytest.mark.parametrize("threads", [0, 2])
    async def test_code_that_reports_its_end_has_ended_with_all_its_processes(
        self, executor: DockerCommandLineCodeExecutor, threads: int
    ) -> None:
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

    async def test_code_that_closes_everything_and_sleeps_ends_by_the_deadline(
        self, make_executor: MakeExecutor
    ) -> None:
        executor = await make_executor(timeout=3)
        result = await run(
            executor, "import os, time; print('begun', flush=True); os.closerange(3, 1000); time.sleep(60)"
        )
        assert short_result(result) == ("timeout", 124, "begun\n\n Timeout")

    async def test_code_that_floods_its_socket_delays_nobody(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(timeout=3)
        flood = FORGE + "    while True: os.write(control_socket(), frame(b'?', 1, {'x': 'y' * 100000}))\n"
        flooding = asyncio.ensure_future(run(executor, flood))
        await asyncio.sleep(0.5)
        assert await out(executor, "print('meanwhile')") == "meanwhile\n"
        # The deadline's signal can cut a frame short, and what follows is garbage.
        assert (await flooding).outcome in {"timeout", "crashed"}

    async def test_code_that_kills_other_processes_again_and_again(
        self, exposed: DockerCommandLineCodeExecutor
    ) -> None:
        code = """
            import os, time
            until = time.monotonic() + 1
            while time.monotonic() < until:
                try: os.kill(-1, 9)
                except ProcessLookupError: pass
            print('done')
        """
        assert await out(exposed, code) == "done\n"
        assert await out(exposed, "print('next')") == "next\n"


class TestConcurrentBlocks:
    async def test_concurrent_blocks_do_not_mix_their_output(self, executor: DockerCommandLineCodeExecutor) -> None:
        code = "import time\nfor _ in range(20): print({0}, '{0}' * 50); time.sleep(0.001)\nprint('end', {0})"
        results = await asyncio.gather(*(run(executor, code.format(number)) for number in range(50)))
        for number, result in enumerate(results):
            assert result.output == f"{number} {str(number) * 50}\n" * 20 + f"end {number}\n"

    async def test_waiting_blocks_have_their_whole_time(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(timeout=4, limits=Limits(pids=16))
        results = await asyncio.gather(*(run(executor, f"import time; time.sleep(0.6); print({n})") for n in range(16)))
        assert [short_result(result) for result in results] == [("ok", 0, f"{n}\n") for n in range(16)]

    async def test_hundreds_of_concurrent_blocks_work(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(timeout=40)
        results = await asyncio.gather(*(run(executor, f"print({n})") for n in range(200)))
        assert [result.output for result in results] == [f"{n}\n" for n in range(200)]


class TestPreload:
    async def test_preloaded_module_is_there_before_the_block(
        self, make_executor: MakeExecutor, tmp_path: Path
    ) -> None:
        executor = await make_executor(preload=["decimal", "xml.dom.minidom"], seccomp=without_landlock(tmp_path))
        code = "import sys; print(*[name in sys.modules for name in ('decimal', 'xml.dom.minidom', 'fractions')])"
        assert await out(executor, code) == "True True False\n"
        # Also after the interpreter that had imported them was killed.
        await run(executor, "import os; os.kill(-1, 9)")
        assert await out(executor, "print(1)") == "1\n"
        assert await out(executor, code) == "True True False\n"

    @pytest.mark.parametrize(
        ("sources", "words"),
        [
            (
                {
                    "broken": "raise ValueError('not today')",
                    "ending": "import sys; sys.exit(3)",
                    "needing": "import no_such_module",
                },
                ("broken: ValueError: not today; ", "ending: SystemExit: 3; ", "needing: ModuleNotFoundError"),
            ),
            ({"broken": "import os; os._exit(3)"}, ("ended while it imported the modules of `preload`",)),
            ({"broken": "import os; os.abort()"}, ("ended while it imported the modules of `preload`",)),
        ],
    )
    async def test_preloaded_modules_that_fail_are_reported_at_the_start(
        self, sandbox_image: str, tmp_path: Path, sources: dict[str, str], words: tuple[str, ...]
    ) -> None:
        tmp_path.chmod(0o755)  # noqa: ASYNC240
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        executor = DockerCommandLineCodeExecutor(
            preload=["json", *sources],
            extra_volumes={str(tmp_path): {"bind": "/mnt/given", "mode": "ro"}},
            environment={"PYTHONPATH": "/mnt/given"},
        )
        with pytest.raises(SandboxStartError) as raised:
            await executor.start()
        assert [each for each in words if each not in str(raised.value)] == []
