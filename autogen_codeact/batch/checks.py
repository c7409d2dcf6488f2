"""Checks of answers. Code and patterns run in a sandbox of their own: an answer may be made to take long."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from fractions import Fraction
from typing import Any

from pydantic_core import to_json

from autogen_codeact.batch.results import CheckResult, Outcome
from autogen_codeact.batch.tasks import Check, Task, as_text, find_number

MAX_ANSWER = 4_000_000  # characters
MAX_SHOWN = 200
MAX_DETAIL = 500
_REGEX = "import re\npassed = re.search(expected, answer) is not None"
_PROGRAM = """
import json as _json
_names = {{"__name__": "__check__", **_json.loads({values})}}
exec(compile(_names.pop("code"), "<check>", "exec", dont_inherit=True), _names)
print("\\n" + {mark} + _json.dumps(bool(_names.get("passed", True))), flush=True)
"""


async def check_answer(task: Task, answer: str, sandboxes: Any) -> list[CheckResult]:
    """Check the answer of a task; `sandboxes` makes executors.

    What the code of a check does counts against the answer: an exception, a timeout or too much memory is a failed check.

    Raises:
        SandboxError: The sandbox of the check broke.
    """
    check = task.check
    if check is None:
        return []
    if len(answer) > MAX_ANSWER:
        passed, detail = False, f"the answer is too long to check: {len(answer):,} characters"
    elif check.kind in ("python", "regex"):
        passed, detail = await _check_with_code(task, check, answer, sandboxes)
    elif check.kind == "number":
        passed, detail = _check_number(check, answer)
    else:
        expected = as_text(check.expected)
        passed, detail = _normal(answer) == _normal(expected), _difference(expected, answer)
    return [CheckResult(kind=check.kind, passed=passed, detail=None if passed else detail)]


def decide_passed(task: Task, outcome: Outcome, checks: Sequence[CheckResult]) -> bool | None:
    """Return whether a task counts as passed: `passed` of its row."""
    if outcome in ("failed", "invalid") or task.check is None:
        return None
    if not checks:
        return False if outcome == "stopped" else None
    return checks[0].passed


def _check_number(check: Check, answer: str) -> tuple[bool, str]:
    wanted, found = find_number(as_text(check.expected)), find_number(answer)
    if found is None or wanted is None:
        return False, "there is no number in the answer"
    expected = Fraction(wanted)
    allowed = max(Fraction(check.tolerance), Fraction(check.relative) * abs(expected))
    return abs(Fraction(found) - expected) <= allowed, _difference(wanted, found)


async def _check_with_code(task: Task, check: Check, answer: str, sandboxes: Any) -> tuple[bool, str]:
    mark = f"check-{secrets.token_hex(16)}:"
    values = {
        "answer": answer.encode("utf-8", "replace").decode(),
        "expected": check.expected,
        "task": task.model_dump(mode="json", exclude={"check"}),
        "code": check.code if check.kind == "python" else _REGEX,
    }
    program = _PROGRAM.format(values=repr(to_json(values).decode()), mark=repr(mark))
    async with AsyncExitStack() as opened:
        executor = await sandboxes.executor()
        opened.push_async_callback(executor.stop)
        await executor.start()
        result = await executor.sandbox.run(program, timeout=check.timeout)
    if result.error is not None:
        return False, f"the check failed: {result.error.type}: {result.error.message}"[:MAX_DETAIL]
    if result.outcome != "ok":
        return False, f"the check ended as {result.outcome!r}"
    verdict = result.output.rpartition(mark)[2].partition("\n")[0] if mark in result.output else ""
    if check.kind == "regex":
        return verdict == "true", f"the answer does not match {check.expected[:MAX_SHOWN]!r}"
    return verdict == "true", "the check has set `passed` to a false value, or ended early"


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _difference(expected: str, answer: str) -> str:
    return f"expected {_shown(expected)}, not {_shown(answer)}"


def _shown(text: str) -> str:
    """Return the beginning of a text, quoted."""
    text = text.strip()
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
