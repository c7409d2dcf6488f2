"""Checks of answers."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autogen_codeact.batch.checks import check_answer, decide_passed, find_number, to_number
from autogen_codeact.batch.rows import CheckResult
from autogen_codeact.batch.tasks import Check, Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox.types.errors import SandboxDied, SandboxUnavailable
from tests.cases import case
from tests.texts import ANY


class NoSandboxes:
    async def executor(self, **options: Any) -> Any:
        raise AssertionError("this check needs no sandbox")


class OwnSandboxes:
    """Makes executors, and keeps their folders on the host."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    async def executor(self, *, work_dir: Path, **options: Any) -> BubblewrapCommandLineCodeExecutor:
        self.folders.append(work_dir)
        return BubblewrapCommandLineCodeExecutor(mode="session", work_dir=work_dir, **options)


def check(answer: str, *, expected: Any = None, sandboxes: Any = None, **options: Any) -> CheckResult:
    task = Task(id="a", task="t", expected=expected, check=Check(**options) if options else None)
    (result,) = asyncio.run(check_answer(task, answer, sandboxes or NoSandboxes()))
    return result


def test_task_without_a_check_has_no_result() -> None:
    assert asyncio.run(check_answer(Task(id="a", task="t"), "x", NoSandboxes())) == []


def test_exact_check() -> None:
    cases: list[Any] = [
        (" Paris\r\n", "Paris", True),
        ("paris", "Paris", False),
        ("a\r\nb", "a\nb", True),
        ("18", 18, True),
        ("true", True, True),
        ("", "", True),
        ("[1,2]", [1, 2], True),
    ]
    for answer, expected, passed in cases:
        with case(answer, expected, passed):
            assert check(answer, expected=expected).passed is passed


def test_failed_check_says_what_was_expected() -> None:
    assert check("London " * 100, expected="Paris") == CheckResult(
        kind="exact", passed=False, detail=f"expected 'Paris', not {('London ' * 100)[:200] + '…'!r}"
    )
    assert check("about 41", expected="42", kind="number").detail == "expected '42', not '41'"
    assert check("none", expected="42", kind="number").detail == "there is no number in the answer"


def test_last_number_of_an_answer() -> None:
    cases: list[Any] = [
        ("It is 42.", 42),
        ("first 1, then 2", 2),
        ("$1,234.50!", 1234.5),
        ("1\u202f234\u202f567", 1234567),
        ("70_000 people", 70000),
        ("1{,}234", 1234),
        ("x = -5", -5),
        ("x = \u22125", -5),
        ("10-5", 5),
        ("-$5", -5),
        (".5", 0.5),
        ("1.5e-3", 0.0015),
        ("1.5 × 10^-3", 0.0015),
        (r"$1.5 \times 10^{-3}$", 0.0015),
        ("3/4", 0.75),
        (r"\frac{3}{4}", 0.75),
        (r"so \boxed{7}, after 3 steps", 7),
        (r"\boxed{1} or \boxed{\text{about } 2}", 2),
        (r"\boxed{\frac{1}{2}}", 0.5),
        (r"\boxed{\text{none}} 5", 5),
        ("5km", 5),
        ("in Q3", None),
        ("v1.2.3", None),
        ("none", None),
        ("1/0", None),
        ("1e999999999", None),
        ("9" * 2000, None),
        ("99999999999999999999999", 99999999999999999999999),
        (r"\boxed{" * 100, None),
    ]
    for text, value in cases:
        with case(text, value):
            number = find_number(text)
            assert (number.value if number else None) == (None if value is None else to_number(value).value)  # type: ignore[union-attr]


def test_tolerance_of_numbers() -> None:
    cases: list[Any] = [
        ("3.14", 3.14159, 0.01, 0, True),
        ("3.14", 3.14159, 0.001, 0, False),
        ("101", 100, 0, 0.01, True),
        ("101.1", 100, 0, 0.01, False),
        ("-101", -100, 0, 0.01, True),
        ("45%", 0.45, 1e-6, 0, True),
        ("45%", 45, 1e-6, 0, True),
        ("0.45", "45%", 1e-6, 0, True),
        ("0.45%", "45%", 1e-6, 0, False),
        ("45", "45%", 1e-6, 0, True),
        ("12345678901234567891", 12345678901234567890, 1e-6, 0, False),
        ("0.30000000000000004", 0.3, 1e-6, 0, True),
        ("1,234", "1234", 0, 0, True),
        ("0", 0, 0, 0, True),
    ]
    for answer, expected, tolerance, relative, passed in cases:
        with case(answer, expected, tolerance, relative, passed):
            result = check(answer, expected=expected, kind="number", tolerance=tolerance, relative=relative)
            assert result.passed is passed


def test_numbers_of_recorded_answers_are_those_that_their_authors_found(shared_data: Path) -> None:
    with gzip.open(shared_data / "tora" / "answers.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    different = []
    for row in rows:
        number, author = find_number(row["code"][0]), to_number(row["pred"][0])
        if author is not None and (number is None or not author.is_near(number, 1e-3, 0)):
            different.append((row["code"][0][-80:], row["pred"][0]))
    assert len(rows) == 600
    assert different == []


def test_json_check() -> None:
    for answer, passed in {
        '{"b": [1.0, null], "a": "x"}': True,
        'Here it is:\n```json\n{"a": "x",\n "b": [1, null]}\n```\nDone.': True,
        'The object {"a": "x", "b": [1, null]} is it.': True,
        '```\n{"a": 1}\n```\n~~~json\n{"a": "x", "b": [1, null]}\n~~~': True,
        '{"a": "x", "b": [true, null]}': False,
        '{"a": "x", "b": [1, null], "c": 1}': False,
        '{"a": "x", "b": [1, null]': False,
        '{"a": "x", "b": [NaN, null]}': False,
        "none": False,
    }.items():
        assert check(answer, expected={"a": "x", "b": [1, None]}, kind="json").passed is passed, answer
    assert check("[1, 2]", expected="[1,2]", kind="json").passed is True
    assert check('"yes"', expected="yes", kind="json").passed is True
    assert check("The list [1, {}].", expected=[1, {}], kind="json").passed is True
    assert check("null", kind="json").passed is True
    assert check("1", expected=True, kind="json").passed is False
    assert check("[" * 1_000_000, expected=[], kind="json").detail == "there is no JSON in the answer"


def test_regex_check() -> None:
    assert check("the answer is B.", expected=r"\b[A-D]\.", kind="regex").passed is True
    assert check("no", expected="^yes$", kind="regex") == CheckResult(
        kind="regex", passed=False, detail="the answer does not match '^yes$'"
    )
    assert check("a\nYES\n\udcff", expected="(?im)^yes$", kind="regex").passed is True


def test_regex_that_backtracks_for_ever_is_killed() -> None:
    result = check("a" * 60 + "!", expected="(a+)+$", kind="regex", timeout=0.5)
    assert result == CheckResult(kind="regex", passed=None, detail="the regex check took longer than 0.5 s")


def test_answer_that_is_too_long_is_not_checked() -> None:
    result = check("x" * 4_000_001, expected="x", kind="regex")
    assert result == CheckResult(
        kind="regex", passed=False, detail="the answer is too long to check: 4,000,001 characters"
    )


def test_timeout_that_no_sandbox_takes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timeout\n.*greater than or equal to 0\.001"):
        Check(kind="python", code="pass", timeout=1e-9)


def test_answer_that_is_made_to_take_long_is_checked_in_linear_time() -> None:
    cases: list[Any] = [
        ("json", "~~~a\n" * 100_000),  # each begins a code block that never ends
        ("json", "`" * 400_000 + "\n"),
        ("exact", "e" + "\u0300\u0327" * 200_000),  # marks that the normal form has in another order
    ]
    for kind, answer in cases:
        with case(kind, answer):
            assert check(answer, expected="1", kind=kind).passed is False


def test_check_that_can_not_work_says_why() -> None:
    assert check("x", kind="regex", expected="(").detail == (
        "check: the regex is not valid: 'missing ), unterminated subpattern at position 0'"
    )
    assert check("x", kind="number", expected="none").passed is None


@settings(max_examples=200, deadline=None)
@given(
    answer=st.text(st.characters(), max_size=200),
    expected=st.text(ANY, max_size=20),
    kind=st.sampled_from(["exact", "number", "json"]),
)
@example(answer="\ud800", expected="", kind="json")
def test_any_answer_has_a_result(answer: str, expected: str, kind: Any) -> None:
    result = check(answer, expected=expected, kind=kind)
    assert result.kind == kind
    result.model_dump_json()


def test_passed_of_a_row() -> None:
    cases: list[Any] = [
        ("completed", [True], True),
        ("completed", [False], False),
        ("completed", [None], None),
        ("completed", [], None),
        ("stopped", [], False),
        ("stopped", [True], True),
        ("failed", [], None),
        ("invalid", [], None),
    ]
    for outcome, checks, passed in cases:
        with case(outcome, checks, passed):
            results = [CheckResult(kind="exact", passed=each) for each in checks]
            assert decide_passed(Task(id="a", task="t", expected=1), outcome, results) is passed
            assert decide_passed(Task(id="a", task="t"), outcome, []) is None


# Code


async def code_check_of(code: str, answer: str = "4", expected: Any = 4, timeout: float = 30) -> CheckResult:
    task = Task(
        id="a",
        task="2 + 2",
        expected=expected,
        metadata={"x": 1},
        check=Check(kind="python", code=code, timeout=timeout),
    )
    sandboxes = OwnSandboxes()
    (result,) = await check_answer(task, answer, sandboxes)
    assert not any(folder.exists() for folder in sandboxes.folders)
    return result


async def test_code_of_a_check() -> None:
    for code, passed, detail in [
        ("passed = int(answer) == expected and task['metadata']['x'] == 1", True, None),
        ("assert int(answer) == expected", True, None),
        ("passed = 0", False, "the check has set `passed` to a false value"),
        ("assert int(answer) == 5, 'not five'", False, "the check failed: not five"),
        ("assert False", False, "the check failed: an assert without a message"),
        ("passed = None", None, "the check has set `passed` to None"),
        ("passed = (", None, "the code of the check is not Python: '(' was never closed (<check>, line 1)"),
        ("exec('(')", False, "the check failed: SyntaxError: '(' was never closed"),
        ("int('x')", False, "the check failed: ValueError: invalid literal for int() with base 10: 'x'"),
        ("print('x' * 50_000_000); passed = True", True, None),
        ("import os; os._exit(0)", False, "the check failed: "),
        ("import sys; sys.exit()", False, "the check"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False, "the check failed: SIGSEGV"),
        ("class P:\n def __bool__(self): 1 / 0\npassed = P()", False, "the check failed: ZeroDivisionError"),
    ]:
        with case(code, passed, detail):
            result = await code_check_of(code)
            assert result.passed is passed
            assert (result.detail is None) if detail is None else (result.detail or "").startswith(detail), result


async def test_code_that_never_ends_is_a_failed_check() -> None:
    result = await code_check_of("while True: pass", timeout=0.5)
    assert result == CheckResult(kind="python", passed=False, detail="the check took longer than 0.5 s")


async def test_code_that_kills_everything_in_its_sandbox_is_a_failed_check() -> None:
    code = "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"
    result = await code_check_of(code, timeout=1)
    assert result.passed is not True
    assert result.detail


async def test_answer_with_quotes_and_strange_characters_arrives_unchanged() -> None:
    answer = "'''\"\"\"\\ {} {answer} \0 \u202e é \n \r\u2028"
    code = f"assert answer == {answer!r}, ascii(answer)"
    assert await code_check_of(code, answer) == CheckResult(kind="python", passed=True)
    assert (await code_check_of("assert answer == '?'", "\ud800")).passed is True


class BrokenSandboxes:
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.made = 0

    async def executor(self, **options: Any) -> Any:
        self.made += 1
        raise self.error


async def test_broken_sandbox_is_tried_again_and_missing_ones_are_an_error() -> None:
    task = Task(id="a", task="t", check=Check(kind="python", code="passed = True"))
    broken = BrokenSandboxes(SandboxDied("it is gone"))
    (result,) = await check_answer(task, "x", broken)
    assert result == CheckResult(
        kind="python", passed=None, detail="the sandbox of the check broke: SandboxDied: it is gone"
    )
    assert broken.made == 2
    with pytest.raises(SandboxUnavailable):
        await check_answer(task, "x", BrokenSandboxes(SandboxUnavailable("no engine")))
