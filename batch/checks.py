"""Checks of answers. What is wrong with a check never ends the batch: it is in its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_codeact.batch.answer_checks import Found, as_text, compare, pattern_problem, shown
from autogen_codeact.batch.check_process import compare_in_process
from autogen_codeact.batch.code_check import check_with_code
from autogen_codeact.batch.numbers import to_number
from autogen_codeact.batch.rows import CheckResult, Outcome
from autogen_codeact.batch.tasks import Check, Task
from codeact_sandbox.tools.payloads import is_small

MAX_PATTERN = 20_000
MAX_CODE = 1_000_000
MAX_ANSWER = 4_000_000
"""Characters of an answer that can be checked."""
LONG_ANSWER = 20_000
"""Characters from which an answer is compared in another process."""


async def check_answer(task: Task, answer: str, sandboxes: Any) -> list[CheckResult]:
    """Check the answer of a task."""
    check = check_of(task)
    if check is None:
        return []
    if (problem := _problem(check)) is not None:
        return [CheckResult(kind=check.kind, passed=None, detail=problem)]
    if len(answer) > MAX_ANSWER:
        detail = f"the answer is too long to check: {len(answer):,} characters"
        return [CheckResult(kind=check.kind, passed=False, detail=detail)]
    return [await _check(task, check, answer, sandboxes)]


async def _check(task: Task, check: Check, answer: str, sandboxes: Any) -> CheckResult:
    if check.kind == "python":
        passed, detail = await check_with_code(task, check, answer, sandboxes)
    elif check.kind == "number":
        passed, detail = _check_number(check, answer)
    elif check.kind == "regex" or len(answer) > LONG_ANSWER or not is_small(check.expected):
        passed, detail = await compare_in_process(check, answer)
    else:
        passed, detail = compare(check.kind, check.expected, answer)
    return CheckResult(kind=check.kind, passed=passed, detail=None if passed else detail)


def check_of(task: Task) -> Check | None:
    """Return how a task is checked, with the expected answer, or None."""
    if task.check is None:
        return None if task.expected is None else Check(expected=task.expected)
    if task.check.expected is None and task.expected is not None:
        return task.check.model_copy(update={"expected": task.expected})
    return task.check


def check_problem(task: Task) -> str | None:
    """Return why the check of a task can't work, or None."""
    check = check_of(task)
    if check is None:
        return None
    problem = _problem(check)
    return pattern_problem(str(check.expected)) if problem is None and check.kind == "regex" else problem


def _problem(check: Check) -> str | None:
    """Return why a check can't work, or None. A regex is not compiled: that can take seconds."""
    if check.kind == "python":
        return _code_problem(check.code or "")
    if check.expected is None and check.kind != "json":
        return f"check: {check.kind!r} needs `expected`"
    if check.kind == "number" and to_number(check.expected) is None:
        return f"check: `expected` is not a number: {shown(as_text(check.expected))}"
    if check.kind == "regex" and not isinstance(check.expected, str):
        return "check: `expected` of a regex has to be a text"
    if check.kind == "regex" and len(check.expected) > MAX_PATTERN:
        return f"check: the regex is longer than {MAX_PATTERN:,} characters"
    return None


def decide_passed(task: Task, outcome: Outcome, checks: Sequence[CheckResult]) -> bool | None:
    """Return whether a task counts as passed: `passed` of its row."""
    if outcome in ("failed", "invalid") or check_of(task) is None:
        return None
    if not checks:
        return False if outcome == "stopped" else None
    passed = [check.passed for check in checks]
    if False in passed:
        return False
    return None if None in passed else True


def _code_problem(code: str) -> str | None:
    if not code.strip():
        return "check: a python check needs `code`"
    return None if len(code) <= MAX_CODE else f"check: its code is longer than {MAX_CODE:,} characters"


def _check_number(check: Check, answer: str) -> Found:
    expected, number = to_number(check.expected), to_number(answer)
    if number is None or expected is None:
        return False, "there is no number in the answer"
    passed = expected.is_near(number, check.tolerance, check.relative)
    return passed, f"expected {shown(expected.text)}, not {shown(number.text)}"
