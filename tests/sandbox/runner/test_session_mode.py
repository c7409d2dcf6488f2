"""Session mode: one interpreter lives on, from block to block."""

import asyncio

import pytest

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

    async def test_syntax_error_is_shown_as_python_shows_it(self, session):
        result = await run(session, "x = 1\nprint('a'")
        assert (result.error.type, result.error.line) == ("SyntaxError", 2)
        first, *_, last = result.output.splitlines()
        assert first.startswith('  File "<block ')
        assert first.endswith(", line 2")
        assert last.startswith("SyntaxError: ")

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

    async def test_lines_are_split_as_python_splits_them(self, session):
        result = await run(session, "page = 'a\x0cb\u2028c'\rzero = 0\r\n1 / zero")
        assert "    1 / zero\n    ~~^~~~~~\n" in result.output

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

    async def test_session_works_for_pickle_dataclasses_and_annotations(self, session):
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
            "(Row(n=3, next=None), int)\n"
        )

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

    async def test_streams_can_be_split(self, make_executor):
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
