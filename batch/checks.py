"""Checks of answers. What is wrong with a check never ends the batch: it is in its result."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from pydantic_core import to_json

from autogen_codeact.batch.code_check import check_with_code
from autogen_codeact.batch.numbers import to_number
from autogen_codeact.batch.regex_check import check_with_pattern
from autogen_codeact.batch.rows import CheckResult, Outcome
from autogen_codeact.batch.task_files import parse_json
from autogen_codeact.batch.tasks import Check, Task
from autogen_codeact.sandbox.host.waiting import in_thread

MAX_PATTERN = 20_000
MAX_CODE = 1_000_000
MAX_ANSWER = 4_000_000
"""Characters of an answer that can be checked."""
LONG_ANSWER = 20_000
"""Characters from which an answer is looked at in a thread."""
MAX_SHOWN = 200
MAX_MARKS = 30
"""Combining characters in a row, as in the stream-safe form of Unicode: to sort n of them takes n² steps."""
_OPENING = re.compile(r"[ \t]*(`{3,}|~{3,})")
_CLOSING = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t\r]*")


class ExecutorSource(Protocol):
    """Makes executors, for checks that run code."""

    async def executor(self, **options: Any) -> Any:
        """Return an executor that has not been started."""


async def check_answer(task: Task, answer: str, sandboxes: ExecutorSource) -> list[CheckResult]:
    """Check the answer of a task.

    Args:
        task: The task.
        answer: Its answer.
        sandboxes: Makes the sandbox for a check that runs code.

    Returns:
        What the check says; nothing if the task has none.

    Raises:
        SandboxUnavailable: There is no sandbox; another attempt may find one.
    """
    check = check_of(task)
    if check is None:
        return []
    if (problem := _problem(check)) is not None:
        return [CheckResult(kind=check.kind, passed=None, detail=problem)]
    if len(answer) > MAX_ANSWER:
        detail = f"the answer is too long to check: {len(answer):,} characters"
        return [CheckResult(kind=check.kind, passed=False, detail=detail)]
    return [await _check(task, check, answer, sandboxes)]


async def _check(task: Task, check: Check, answer: str, sandboxes: ExecutorSource) -> CheckResult:
    if check.kind == "python":
        return await check_with_code(task, check, answer, sandboxes)
    if check.kind == "regex":
        return await check_with_pattern(str(check.expected), answer, check.timeout)
    compare = {"exact": _check_exact, "number": _check_number, "json": _check_json}[check.kind]
    return await in_thread(compare, check, answer) if len(answer) > LONG_ANSWER else compare(check, answer)


def check_of(task: Task) -> Check | None:
    """Return how a task is checked, with the expected answer, or None.

    Args:
        task: The task.
    """
    if task.check is None:
        return None if task.expected is None else Check(expected=task.expected)
    if task.check.expected is None and task.expected is not None:
        return task.check.model_copy(update={"expected": task.expected})
    return task.check


def check_problem(task: Task) -> str | None:
    """Return why the check of a task can't work, or None.

    Args:
        task: The task.
    """
    check = check_of(task)
    if check is None:
        return None
    problem = _problem(check)
    return _pattern_problem(str(check.expected)) if problem is None and check.kind == "regex" else problem


def _problem(check: Check) -> str | None:
    """Return why a check can't work, or None. A regex is not compiled: that can take seconds."""
    if check.kind == "python":
        return _code_problem(check.code)
    if check.expected is None and check.kind != "json":
        return f"check: {check.kind!r} needs `expected`"
    if check.kind == "number" and to_number(check.expected) is None:
        return f"check: `expected` is not a number: {_shown(_as_text(check.expected))}"
    if check.kind == "regex" and not isinstance(check.expected, str):
        return "check: `expected` of a regex has to be a text"
    if check.kind == "regex" and len(check.expected) > MAX_PATTERN:
        return f"check: the regex is longer than {MAX_PATTERN:,} characters"
    return None


def decide_passed(task: Task, outcome: Outcome, checks: Sequence[CheckResult]) -> bool | None:
    """Return whether a task counts as passed: `passed` of its row.

    Args:
        task: The task.
        outcome: How it has ended.
        checks: The checks of its answer.

    Returns:
        True if all checks passed, False if one did not or if there is a check and the agent stopped without an answer. None if
        there is no check, an error ended the task, or a check itself failed.
    """
    if outcome in ("failed", "invalid") or check_of(task) is None:
        return None
    if not checks:
        return False if outcome == "stopped" else None
    passed = [check.passed for check in checks]
    if False in passed:
        return False
    return None if None in passed else True


def _code_problem(code: str | None) -> str | None:
    if code is None or not code.strip():
        return "check: a python check needs `code`"
    return None if len(code) <= MAX_CODE else f"check: its code is longer than {MAX_CODE:,} characters"


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"check: the regex is not valid: {_shown(str(error))}"
    return None


def _check_exact(check: Check, answer: str) -> CheckResult:
    expected = _as_text(check.expected)
    passed = _normal(answer) == _normal(expected)
    return _result(check, passed, f"expected {_shown(expected)}, not {_shown(answer)}")


def _check_number(check: Check, answer: str) -> CheckResult:
    expected, number = to_number(check.expected), to_number(answer)
    if number is None or expected is None:
        return _result(check, False, "there is no number in the answer")
    passed = expected.is_near(number, check.tolerance, check.relative)
    return _result(check, passed, f"expected {_shown(expected.text)}, not {_shown(number.text)}")


def _check_json(check: Check, answer: str) -> CheckResult:
    expected = check.expected
    if isinstance(expected, str):
        with suppress(ValueError):  # else it is a text as a JSON value
            expected = parse_json(expected)
    for text in _json_texts(answer):
        try:
            value = parse_json(text)
        except ValueError:
            continue
        try:
            passed = _same(expected, value)
        except RecursionError:
            return _result(check, False, "it is nested too deeply")
        return _result(check, passed, f"expected {_shown(_as_text(expected))}, not {_shown(text)}")
    return _result(check, False, "there is no JSON in the answer")


def _json_texts(answer: str) -> list[str]:
    """Return the texts that may be the JSON value, the likeliest first: all of it, the last code block, what is in brackets."""
    texts = [answer, *reversed(_fenced(answer)[-10:])]
    for opening, closing in sorted((("{", "}"), ("[", "]")), key=lambda pair: _position(answer, pair[0])):
        start, end = answer.find(opening), answer.rfind(closing)
        if 0 <= start < end:
            texts.append(answer[start : end + 1])
    return [text.strip() for text in texts]


def _fenced(answer: str) -> list[str]:
    """Return what is in code blocks. The time is linear also if there are a million that begin and none that ends."""
    if "```" not in answer and "~~~" not in answer:
        return []
    lines = answer.split("\n")
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if (closing := _CLOSING.fullmatch(line)) is not None:
            ends.setdefault(closing.group(1), []).append(number)
    blocks, number = [], 0
    while number < len(lines):
        opening = _OPENING.match(lines[number])
        number += 1
        places = ends.get(opening.group(1), []) if opening is not None else []
        if (at := bisect_left(places, number)) < len(places):
            blocks.append("\n".join(lines[number : places[at]]))
            number = places[at] + 1
    return blocks


def _position(text: str, opening: str) -> int:
    found = text.find(opening)
    return found if found >= 0 else len(text)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def _result(check: Check, passed: bool, detail: str) -> CheckResult:
    return CheckResult(kind=check.kind, passed=passed, detail=None if passed else detail)


def _normal(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return (unicodedata.normalize("NFC", text) if _has_few_marks(text) else text).strip()


def _has_few_marks(text: str) -> bool:
    marks = 0
    for character in "" if text.isascii() else text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks > MAX_MARKS:
            return False
    return True


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except ValueError:
        return repr(value)


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
