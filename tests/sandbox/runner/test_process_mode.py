"""Process mode: every block a fresh process, and nothing of it outlives it."""

import asyncio

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits, SandboxStartError
from tests.cases import case
from tests.sandbox.sandboxes import FORGE, block, out, run, shared_executor, short_result

pytestmark = pytest.mark.asyncio(loop_scope="module")


executor = shared_executor(timeout=40)


class TestScript:
    async def test_script_is_a_main_module_of_its_own(self, executor):
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

    async def test_script_knows_nothing_of_the_block_before(self, executor):
        await out(executor, "import json, os; x = 1; json.mark = 1; os.environ['MARK'] = '1'; os.chdir('/tmp')")
        assert await out(
            executor,
            "import json, os; print('x' in globals(), hasattr(json, 'mark'), 'MARK' in os.environ, os.getcwd())",
        ) == ("False False False /workspace\n")

    async def test_script_runs_its_exit_handlers_and_waits_for_its_threads(self, executor):
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

    async def test_script_has_no_standard_input(self, executor):
        assert (await run(executor, "input()")).error.type == "EOFError"

    async def test_script_leaves_nothing_for_a_checkpoint(self, executor):
        with pytest.raises(ValueError, match="mode='session'"):
            await executor.checkpoint()

    async def test_script_reports_what_it_raised(self, executor):
        result = await run(executor, "import math\n\nprint('first')\nmath.sqrt(-1)\n")
        assert (result.outcome, result.exit_code) == ("error", 1)
        assert (result.error.type, result.error.message, result.error.line) == ("ValueError", "math domain error", 4)
        assert result.output.startswith('first\nTraceback (most recent call last):\n  File "/workspace/tmp_code_')
        assert "codeact" not in result.output

    async def test_script_that_can_not_run_is_an_error(self, executor):
        for code, kind in [
            ("x = '\0'", "SyntaxError"),
            ("print(", "SyntaxError"),
            ("type('N' * 10**7, (Exception,), {})('m' * 10**7).no", "AttributeError"),
        ]:
            with case(code, kind):
                result = await run(executor, code)
                assert result.outcome == "error"
                # Python before 3.12 says ValueError of a NUL.
                assert result.error.type in {kind, "ValueError"}

    async def test_notebook_syntax_in_a_script_is_answered_with_a_hint_to_session_mode(self, executor):
        for code, named in [
            ("!echo hi", True),
            ("x = 1\n%time x", True),
            ("import asyncio\nawait asyncio.sleep(0)", True),
            ("import sys; sys.stderr = None; exec('!echo')\n", False),
            ("x = (1", False),
        ]:
            with case(code, named):
                result = await run(executor, code)
                assert result.error.type == "SyntaxError"
                hint = (
                    "In process mode a block is a script. `!`, `%` and `await` outside of a function need a session.\n"
                )
                assert result.output.endswith(hint) == named

    async def test_script_of_8_mib_runs_and_a_larger_one_is_refused(self, executor):
        room = 8 * 1024 * 1024 - 64 * 1024
        code = "print(1)\n"
        assert await out(executor, code + "#" * (room - len(code))) == "1\n"
        result = await run(executor, code + "#" * room)
        assert (result.outcome, result.error.type) == ("error", "CodeTooLarge")


class TestBlocksOfOneCall:
    async def test_blocks_run_up_to_the_first_that_fails(self, executor):
        codes = ("print(1)", "print(2); raise SystemExit(4)", "print(3)")
        result = await executor.execute_code_blocks(list(map(block, codes)), CancellationToken())
        assert short_result(result) == ("error", 4, "1\n2\n")

    async def test_at_least_one_block_is_required(self, executor):
        with pytest.raises(ValueError, match="No code blocks"):
            await executor.execute_code_blocks([], CancellationToken())


class TestConcurrentBlocks:
    async def test_waiting_blocks_have_their_whole_time(self, make_docker):
        executor = await make_docker(timeout=2.5, limits=Limits(pids=16))
        results = await asyncio.gather(*(run(executor, f"import time; time.sleep(0.4); print({n})") for n in range(16)))
        assert [short_result(result) for result in results] == [("ok", 0, f"{n}\n") for n in range(16)]


class TestPreload:
    async def test_preloaded_module_is_there_before_the_block(self, make_executor):
        executor = await make_executor(preload=["decimal", "xml.dom.minidom"])
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
    async def test_preloaded_modules_that_fail_are_reported_at_the_start(self, sandbox_image, tmp_path, sources, words):
        tmp_path.chmod(0o755)
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


class TestAttacksOnTheSandbox:
    """What code does to the sandbox harms only its own block."""

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
