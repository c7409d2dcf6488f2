"""Cells of a session run as in a notebook, with IPython in the sandbox's Python and without."""

import sys
import time
from collections.abc import Iterator

import pytest

from tests.cases import case
from tests.sandbox.bubblewrapped import SYSTEM_PYTHON
from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import namespaces_work

pytestmark = [pytest.mark.skipif(not namespaces_work(), reason="no right to make a PID namespace (root has it)")]
SLOW = "import asyncio\nasync def slow(value):\n    await asyncio.sleep(0.001)\n    return value\n"


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    pytest.importorskip("IPython")
    with LocalRunner(sys.executable, tmp_path_factory.mktemp("ipython"), mode="session") as runner:
        runner.greet()
        yield runner


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    with LocalRunner(str(SYSTEM_PYTHON), tmp_path_factory.mktemp("small"), mode="session") as runner:
        runner.greet()
        yield runner


@pytest.fixture(scope="module", params=["ipython", "small"])
def session(request: pytest.FixtureRequest) -> LocalRunner:
    found: LocalRunner = request.getfixturevalue(request.param)
    return found


def out(session: LocalRunner, code: str, **request: object) -> str:
    """The output of a cell that must end well."""
    result, output = session.run(code, **request)
    assert (result["outcome"], result["exit_code"]) == ("ok", 0), (result, output)
    return output


def error(session: LocalRunner, code: str) -> tuple[str, str]:
    """The message and the output of a cell that must fail."""
    result, output = session.run(code)
    assert (result["outcome"], result["state"]) == ("error", "kept"), (result, output)
    return result["error"]["message"], output


class TestAwait:
    def test_top_level_await_and_tasks_that_last(self, session: LocalRunner) -> None:
        out(session, SLOW)
        assert out(session, "await slow(5)") == "5\n"
        assert out(session, "x = await slow(6)\nx") == "6\n"
        # A cell without `await` can start a task, too.
        assert out(session, "task = asyncio.create_task(slow(7))") == ""
        assert out(session, "await task") == "7\n"
        assert out(session, "async with asyncio.timeout(5) as t: print(await slow(8))") == "8\n"

    def test_due_tasks_go_on_before_the_next_cell(self, session: LocalRunner) -> None:
        out(
            session,
            "import asyncio, time\nasync def steps():\n    await asyncio.sleep(0.01)\n    await asyncio.sleep(0)\n    return 5",
        )
        out(session, "task = asyncio.create_task(steps())")
        out(session, "time.sleep(0.02)")
        assert out(session, "task.done(), task.result()") == "(True, 5)\n"

    def test_errors_show_only_the_cells_lines(self, session: LocalRunner) -> None:
        number = session.run("1")[0]["number"] + 1
        message, output = error(session, "import asyncio\nawait asyncio.sleep(0)\n1 / 0")
        assert message == "division by zero"
        caret = "    ~~^~~\n" if sys.version_info >= (3, 11) else ""
        assert output == (
            f'Traceback (most recent call last):\n  File "<block {number}>", line 3, in <module>\n    1 / 0\n{caret}'
            "ZeroDivisionError: division by zero\n"
        )

    def test_restored_session_has_a_new_loop_and_names_cancelled_tasks(self, session: LocalRunner) -> None:
        out(session, SLOW)
        out(session, "async def forever():\n    while True: await slow(0)\n")
        out(session, "task = asyncio.create_task(forever())\nawait asyncio.to_thread(len, 'abc')")
        result, _ = session.run("import time; time.sleep(60)", timeout=2)
        assert (result["outcome"], result["state"]) == ("timeout", "restored")
        assert result["notes"] == [
            "Files, threads and subprocesses are not restored.",
            "These tasks of asyncio were pending and have been cancelled, and there is a new event loop: forever.",
        ]
        assert out(session, "task.cancelled(), await asyncio.to_thread(len, 'abcd')") == "(True, 4)\n"
        result, _ = session.run("1")
        assert result["notes"] == []

    def test_code_that_cannot_be_compiled_has_no_effect(self, session: LocalRunner) -> None:
        message, output = error(session, "effect = 1\nawait x y")
        assert message == "invalid syntax"
        assert output.count("SyntaxError") == 1
        assert out(session, "'effect' in globals()") == "False\n"


class TestCommands:
    def test_output_and_exit_status(self, session: LocalRunner) -> None:
        assert out(session, "!echo one; echo two >&2; exit 3") == "one\ntwo\nthe command ended with exit status 3\n"
        assert out(session, "_exit_code") == "3\n"
        assert out(session, "!kill -9 $BASHPID") == "the command was ended by SIGKILL\n"
        assert out(session, "print(1)\n!echo 2\nprint(3)\nif True:\n    !echo 4") == "1\n2\n3\n4\n"

    def test_assignment_gives_lines(self, session: LocalRunner) -> None:
        assert out(session, "lines = !printf 'a\\nb\\n'\nlines, lines.n, lines.s") == "(['a', 'b'], 'a\\nb', 'a b')\n"

    def test_variables_are_replaced(self, session: LocalRunner) -> None:
        out(session, "name = 'x y'; numbers = [1, 2]")
        assert out(session, "!echo {name.upper()} $name {numbers[1:]}") == "X Y x y [2]\n"
        # What can't be evaluated is left to the shell.
        assert out(session, "!echo '{not a name}'") == "{not a name}\n"
        assert out(session, "def f(local):\n    !echo {local}\nf(5)") == "5\n"
        assert out(session, "!echo a b | awk '{print $2}'") == "b\n"

    def test_bash_cell(self, session: LocalRunner) -> None:
        assert out(session, "%%bash\nfor i in 1 2; do echo $i; done") == "1\n2\n"
        assert out(session, "%%bash --no-raise-error\necho shown; exit 1") == "shown\n"
        message, _ = error(session, "%%bash --out text\ntrue")
        assert message == "%%bash has no option --out here: use `lines = !command` to get the output"
        message, output = error(session, "%%sh\necho before\nexit 4")
        assert message == "Command '['sh']' returned non-zero exit status 4."
        assert output.startswith("before\nTraceback (most recent call last):\n")

    def test_continued_command_keeps_line_numbers(self, session: LocalRunner) -> None:
        result, output = session.run("!echo a \\\n  b\n\n1 / 0")
        assert output.startswith("a b\n")
        assert result["error"]["line"] == 4
        assert "line 4, in <module>\n    1 / 0\n" in output


class TestMagics:
    def test_time_shows_the_value(self, session: LocalRunner) -> None:
        lines = out(session, "%time sum(range(10))").splitlines()
        assert [line.split(":")[0] for line in lines] == ["CPU times", "Wall time", "45"]
        lines = out(session, "%%time\nx = 4\nx + 1").splitlines()
        assert [line.split(":")[0] for line in lines] == ["CPU times", "Wall time", "5"]

    def test_capture(self, ipython: LocalRunner) -> None:
        out(ipython, "%%capture shown\nprint('a')\n!echo b\n3")
        assert out(ipython, "shown.stdout.split()[:2]") == "['a', 'b']\n"

    def test_writefile(self, session: LocalRunner) -> None:
        out(session, "%%writefile made.py\nvalue = 'made'\n")
        assert out(session, "import made; made.value") == "'made'\n"

    def test_cd_and_env(self, session: LocalRunner) -> None:
        folder = out(session, "%pwd")
        assert out(session, "%cd /usr/lib") == "/usr/lib\n"
        assert out(session, "import os; os.getcwd()") == "'/usr/lib'\n"
        assert out(session, "%env ANSWER=42") == "env: ANSWER=42\n"
        assert out(session, "!echo $ANSWER") == "42\n"
        out(session, f"%cd {folder}")
        # A shell block starts there, too.
        result, output = session.run("echo $ANSWER", command=["sh", "{file}"], timeout=5)
        assert (result["outcome"], output) == ("ok", "42\n")

    def test_unknown_magic_fails(self, session: LocalRunner) -> None:
        message, _ = error(session, "%no_such_magic 1")
        assert "no_such_magic" in message

    def test_names_without_percent_sign(self, session: LocalRunner) -> None:
        assert out(session, "cd /usr/lib") == "/usr/lib\n"
        assert out(session, "cd -").startswith("/")
        assert out(session, "time = 5\ntime") == "5\n"
        assert out(session, "time") == "5\n"
        out(session, "del time")

    def test_questions(self, ipython: LocalRunner) -> None:
        output = out(ipython, "def asked(first, second=2):\n    'Help me.'\n\nasked?")
        assert "asked(first, second=2)" in output
        assert "Help me." in output
        assert "\x1b" not in output

    def test_without_ipython_the_error_names_the_magics(self, small: LocalRunner) -> None:
        message, _ = error(small, "%lsmagic")
        assert message == (
            "there is no magic %lsmagic here, because IPython is not installed; there are %%time %%writefile "
            "%cd %env %ls %matplotlib %pip %pwd %time %%bash %%sh %%script %%perl %%ruby %%python "
            "%%python3"
        )


class TestValues:
    def test_values_print_as_ipython_prints_them(self, ipython: LocalRunner) -> None:
        for code, shown in [
            ("type(1), int", "(int, int)\n"),
            ("{3, 1, 2}", "{1, 2, 3}\n"),
            ("{'a': [1, None], 'b': 'c'}", "{'a': [1, None], 'b': 'c'}\n"),
            ("list(range(30))", "[" + ",\n ".join(map(str, range(30))) + "]\n"),
            ("object.__repr__", "<slot wrapper '__repr__' of 'object' objects>\n"),
            ("'a\\nb'", "'a\\nb'\n"),
            ("5;", ""),
            ("5; # really", ""),
            ("(5);\n# the end", ""),
            ("';'", "';'\n"),
            ("None", ""),
        ]:
            with case(code, shown):
                assert out(ipython, code) == shown

    def test_future_annotations_hold_for_later_cells(self, session: LocalRunner) -> None:
        out(session, "from __future__ import annotations")
        assert out(session, "def f(x: Unknown): pass\nf.__annotations__") == "{'x': 'Unknown'}\n"
        out(session, "del f, annotations")

    def test_values_without_ipython_come_close(self, small: LocalRunner) -> None:
        for code, shown in [
            ("int", "int\n"),
            ("import collections; collections.OrderedDict", "collections.OrderedDict\n"),
            ("list(range(30))", "[" + ",\n ".join(map(str, range(30))) + "]\n"),
            ("{'b': 1, 'a': 2}", "{'b': 1, 'a': 2}\n"),
            ("5;", ""),
        ]:
            with case(code, shown):
                assert out(small, code) == shown

    def test_values_can_be_read_by_later_cells(self, session: LocalRunner) -> None:
        out(session, "'first'")
        out(session, "'second'")
        assert out(session, "_, __") == "('second', 'first')\n"
        assert out(session, "Out[max(Out)] is _, In[-1], _i") == ("(True, 'Out[max(Out)] is _, In[-1], _i', '_, __')\n")

    def test_variable_underscore_of_the_code_is_kept(self, session: LocalRunner) -> None:
        out(session, "for _ in range(3): pass\n'shown'")
        assert out(session, "_") == "2\n"
        out(session, "del _")


class TestInteractiveFunctions:
    def test_input_says_that_there_is_no_terminal(self, session: LocalRunner) -> None:
        message, _ = error(session, "input('Your name? ')")
        assert message == (
            "input() can't be answered here, without a terminal: put the value into the code, "
            "read it from a file or a variable of the environment, or ask for it in your answer"
        )

    def test_breakpoint_is_skipped(self, session: LocalRunner) -> None:
        assert out(session, "breakpoint()\nprint('on')") == (
            "breakpoint() does nothing here: there is no debugger, because there is no terminal; print the values instead\non\n"
        )

    def test_syntax_error_is_shown_once_with_the_caret_in_place(self, session: LocalRunner) -> None:
        number = session.run("1")[0]["number"] + 1
        _, output = error(session, "!true\nvalue = 1 +* 2\n")
        assert output == (
            f'  File "<block {number}>", line 2\n    value = 1 +* 2\n               ^\nSyntaxError: invalid syntax\n'
        )


# The event loop counts as running in every cell


@pytest.mark.parametrize(
    "call",
    [
        "asyncio.run(slow(3))",
        "asyncio.get_event_loop().run_until_complete(slow(3))",
        "asyncio.new_event_loop().run_until_complete(slow(3))",
        "asyncio.Runner().run(slow(3)) if hasattr(asyncio, 'Runner') else 3",
        "await asyncio.to_thread(asyncio.run, slow(3))",
    ],
)
def test_calls_that_start_a_loop_work_as_in_a_script(session, call):
    assert out(session, SLOW + call) == "3\n"
    assert out(session, "asyncio.get_running_loop() is asyncio.get_event_loop()") == "True\n"


def test_task_begins_at_the_end_of_the_cell_that_creates_it(session):
    out(
        session,
        "import asyncio\nseen = []\nasync def note(): seen.append('began')\n"
        "task = asyncio.create_task(note())\nseen.append('cell')",
    )
    assert out(session, "seen, task.done()") == "(['cell', 'began'], True)\n"


# Events for extensions of IPython


def test_events_come_around_each_cell(ipython):
    out(
        ipython,
        "events = get_ipython().events\nseen = []\n"
        "first, last = (lambda: seen.append('before')), (lambda: seen.append('after'))\n"
        "before = lambda info: seen.append(info.raw_cell)\nafter = lambda result: seen.append(repr(result.error_in_exec))\n"
        "calls = dict(pre_execute=first, pre_run_cell=before, post_execute=last, post_run_cell=after)\n"
        "for name in calls: events.register(name, calls[name])",
    )
    error(ipython, "1/0")
    seen = out(
        ipython,
        "for name in calls: events.unregister(name, calls[name])\nprint(seen[2:6])",
    )
    assert seen == "['before', '1/0', 'after', \"ZeroDivisionError('division by zero')\"]\n"


def test_loop_runs_in_a_cell_that_imports_asyncio_after_the_session_was_idle(tmp_path):
    with LocalRunner(str(SYSTEM_PYTHON), tmp_path, mode="session") as runner:
        runner.greet()
        out(runner, "1")
        time.sleep(0.2)  # the session prepares its next cell meanwhile
        out(runner, SLOW + "future = asyncio.gather(slow(1))")
        assert out(runner, "await future") == "[1]\n"
