"""Checks of answers."""

import asyncio
import re
from fractions import Fraction
from typing import Any

import pytest

from autogen_codeact.batch.checks import check_answer, decide_passed
from autogen_codeact.batch.results import CheckResult
from autogen_codeact.batch.tasks import Check, Task, find_number
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox.types.errors import SandboxDied


class NoSandboxes:
    async def executor(self) -> Any:
        raise AssertionError("this check needs no sandbox")


class OwnSandboxes:
    async def executor(self) -> BubblewrapCommandLineCodeExecutor:
        return BubblewrapCommandLineCodeExecutor(mode="session")


def check(answer: str, *, expected: Any = None, **options: Any) -> CheckResult:
    task = Task(id="a", task="t", expected=expected, check=Check(**options) if options else None)
    (result,) = asyncio.run(check_answer(task, answer, NoSandboxes()))
    return result


def test_task_without_a_check_has_no_result() -> None:
    assert asyncio.run(check_answer(Task(id="a", task="t"), "x", NoSandboxes())) == []


@pytest.mark.parametrize(
    ("answer", "expected", "passed"),
    [
        (" Paris\r\n", "Paris", True),
        ("paris", "Paris", False),
        ("a\r\nb", "a\nb", True),
        ("18", 18, True),
        ("true", True, True),
        ("", "", True),
        ("[1,2]", [1, 2], True),
    ],
)
def test_exact_check(answer: str, expected: Any, passed: bool) -> None:
    assert check(answer, expected=expected).passed is passed


def test_failed_check_says_what_was_expected() -> None:
    assert check("London " * 100, expected="Paris") == CheckResult(
        kind="exact", passed=False, detail=f"expected 'Paris', not {('London ' * 100)[:200] + '…'!r}"
    )
    assert check("about 41", expected="42", kind="number").detail == "expected '42', not '41'"
    assert check("none", expected="42", kind="number").detail == "there is no number in the answer"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It is 42.", "42"),
        ("first 1, then 2", "2"),
        ("$1,234.50!", "1234.50"),
        ("x = -5", "-5"),
        ("10-5", "5"),
        (".5", ".5"),
        ("1.5e-3", "1.5e-3"),
        (r"so \boxed{7}", "7"),
        ("5km", "5"),
        ("in Q3", None),
        ("v1.2.3", None),
        ("none", None),
        ("9" * 2000, None),
        ("1," * 100_000, "1"),
    ],
)
def test_last_number_of_an_answer(text: str, value: str | None) -> None:
    assert find_number(text) == value
    assert value is None or Fraction(value) is not None


@pytest.mark.parametrize(
    ("answer", "expected", "tolerance", "relative", "passed"),
    [
        ("3.14", 3.14159, 0.01, 0, True),
        ("3.14", 3.14159, 0.001, 0, False),
        ("101", 100, 0, 0.01, True),
        ("101.1", 100, 0, 0.01, False),
        ("-101", -100, 0, 0.01, True),
        ("12345678901234567891", 12345678901234567890, 1e-6, 0, False),
        ("0.30000000000000004", 0.3, 1e-6, 0, True),
        ("1,234", "1234", 0, 0, True),
        ("0", 0, 0, 0, True),
    ],
)
def test_tolerance_of_numbers(answer: str, expected: Any, tolerance: float, relative: float, passed: bool) -> None:
    result = check(answer, expected=expected, kind="number", tolerance=tolerance, relative=relative)
    assert result.passed is passed


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "number"}, "check: 'number' needs `expected`"),
        ({"kind": "number", "expected": "many"}, "check: `expected` is not a number: 'many'"),
        ({"kind": "number", "expected": True}, "check: `expected` is not a number: True"),
        ({"kind": "regex", "expected": 5}, "check: `expected` of a regex has to be a text"),
        ({"kind": "python"}, "check: a python check needs `code`"),
    ],
)
def test_check_that_can_not_work_says_why(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        Task(id="a", task="t", check=Check(**options))


@pytest.mark.parametrize(
    ("outcome", "checks", "passed"),
    [
        ("completed", [True], True),
        ("completed", [False], False),
        ("completed", [None], None),
        ("completed", [], None),
        ("stopped", [], False),
        ("stopped", [True], True),
        ("failed", [], None),
        ("invalid", [], None),
    ],
)
def test_passed_of_a_row(outcome: Any, checks: list[bool | None], passed: bool | None) -> None:
    results = [CheckResult(kind="exact", passed=each) for each in checks]
    assert decide_passed(Task(id="a", task="t", expected=1), outcome, results) is passed
    assert decide_passed(Task(id="a", task="t"), outcome, []) is None


# In a sandbox


async def check_in_sandbox(answer: str = "4", **options: Any) -> CheckResult:
    task = Task(id="a", task="2 + 2", expected=4, metadata={"x": 1}, check=Check(**options))
    (result,) = await check_answer(task, answer, OwnSandboxes())
    return result


FALSE = "the check has set `passed` to a false value, or ended early"


@pytest.mark.parametrize(
    ("code", "passed", "detail"),
    [
        ("passed = int(answer) == expected and task['metadata']['x'] == 1", True, None),
        ("assert int(answer) == expected", True, None),
        ("passed = 0", False, FALSE),
        ("assert int(answer) == 5, 'not five'", False, "the check failed: AssertionError: not five"),
        ("passed = (", False, "the check failed: SyntaxError: '(' was never closed"),
        ("int('x')", False, "the check failed: ValueError: invalid literal for int() with base 10: 'x'"),
        ("print('x' * 50_000_000); passed = True", True, None),
        ("import os; os._exit(0)", False, ""),
        ("import sys; sys.exit()", False, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False, "the check failed: SIGSEGV"),
        ("class P:\n def __bool__(self): 1 / 0\npassed = P()", False, "the check failed: ZeroDivisionError"),
    ],
)
async def test_code_of_a_check(bubblewrap: None, code: str, passed: bool, detail: str | None) -> None:
    result = await check_in_sandbox(kind="python", code=code)
    assert result.passed is passed
    assert (result.detail is None) if detail is None else (result.detail or "").startswith(detail), result


async def test_code_that_never_ends_is_a_failed_check(bubblewrap: None) -> None:
    result = await check_in_sandbox(kind="python", code="while True: pass", timeout=0.5)
    assert result == CheckResult(kind="python", passed=False, detail="the check ended as 'timeout'")


async def test_answer_with_quotes_and_strange_characters_arrives_unchanged(bubblewrap: None) -> None:
    answer = "'''\"\"\"\\ {} {answer} \0 \u202e é \n \r\u2028"
    code = f"assert answer == {answer!r}, ascii(answer)"
    assert await check_in_sandbox(answer, kind="python", code=code) == CheckResult(kind="python", passed=True)


@pytest.mark.parametrize(
    ("answer", "pattern", "passed"),
    [("the answer is B.", r"\b[A-D]\.", True), ("no", "^yes$", False), ("a\nYES\n\udcff", "(?im)^yes$", True)],
)
async def test_regex_check(bubblewrap: None, answer: str, pattern: str, passed: bool) -> None:
    result = await check_in_sandbox(answer, kind="regex", expected=pattern)
    detail = None if passed else f"the answer does not match {pattern!r}"
    assert result == CheckResult(kind="regex", passed=passed, detail=detail)


async def test_regex_that_backtracks_for_ever_ends(bubblewrap: None) -> None:
    result = await check_in_sandbox("a" * 60 + "!", kind="regex", expected="(a+)+$", timeout=0.5)
    assert result == CheckResult(kind="regex", passed=False, detail="the check ended as 'timeout'")


async def test_broken_sandbox_is_an_error_of_the_attempt() -> None:
    class Broken:
        async def executor(self) -> Any:
            raise SandboxDied("it is gone")

    with pytest.raises(SandboxDied):
        await check_answer(Task(id="a", task="t", check=Check(kind="python", code="passed = True")), "x", Broken())
