"""Checks of answers. What is wrong with a check never ends the batch: it is in its result."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import pydantic_core
from pydantic_core import to_json

from autogen_codeact.batch.answer_checks import Found, as_text, compare, pattern_problem, shown
from autogen_codeact.batch.rows import CheckResult, Outcome
from autogen_codeact.batch.tasks import Check, Task
from codeact_sandbox.tools.payloads import is_small
from codeact_sandbox.types.errors import SandboxError, SandboxUnavailable
from codeact_sandbox.types.result import Result

MAX_LOOKED_AT = 10_000  # characters at the end of a text in which its last number has to be
MAX_DIGITS = 1000
MAX_EXPONENT = 400
_SPACES = "\u00a0\u2007\u2009\u202f"
_INTEGER = rf"\d{{1,3}}(?:[,_{_SPACES}]\d{{3}})+(?!\d)|\d{{1,3}}(?:\{{,\}}\d{{3}})+(?!\d)|\d+(?:_\d+)*"
_EXPONENT = r"[eE][-+]?\d+(?!\w)|\s?(?:×|\\times|\\cdot|·)\s?10(?:\^|\*\*)(?:\{[-+]?\d+\}|[-+]?\d+)"
_NUMBER = re.compile(
    rf"""
    (?<![\w./^]) (?P<sign>(?<![)\]}}])[-+])? (?:\\?[$€£¥])?
    (?: \\[dt]?frac\{{\s*(?P<top>-?\d{{1,{MAX_DIGITS}}})\s*\}}\{{\s*(?P<bottom>\d{{1,{MAX_DIGITS}}})\s*\}}
      | (?P<over>\d{{1,{MAX_DIGITS}}})\s?/\s?(?P<under>\d{{1,{MAX_DIGITS}}})(?![\d/.])
      | (?P<whole>{_INTEGER})? (?P<part>\.\d+)? (?P<exponent>{_EXPONENT})? (?P<percent>\s?\\?%)?
    )""",
    re.VERBOSE,
)
END_S = 10.0
# Without the rest of the package, whose import takes seconds.
_COMPARE = "import sys; sys.path += sys.argv[1:]; import answer_checks; answer_checks.main()"
_FOLDERS = [str(Path(each).parents[up]) for each, up in ((__file__, 0), (pydantic_core.__file__, 1))]
logger = logging.getLogger("autogen_codeact")
STOP_S = 60.0
MAX_DETAIL = 500
_PROGRAM = """
import json as _json
_values = _json.loads({values})
_names = {{"__name__": "__check__", **_values}}
try:
    _code = compile(_names.pop("code"), "<check>", "exec", dont_inherit=True)
except (SyntaxError, ValueError) as _error:
    _code, _said = None, [None, "the code of the check is not Python: " + str(_error)[:{most}]]
try:
    if _code is not None:
        exec(_code, _names)
        _passed = _names.get("passed", True)
        _said = [None if _passed is None else bool(_passed), None]
except AssertionError as _error:
    _said = [False, "the check failed: " + (str(_error)[:{most}] or "an assert without a message")]
print("\\n" + {mark} + _json.dumps(_said), flush=True)
"""
MAX_PATTERN = 20_000
MAX_CODE = 1_000_000
MAX_ANSWER = 4_000_000  # characters of an answer that can be checked
LONG_ANSWER = 20_000  # characters from which an answer is compared in another process


@dataclass(frozen=True)
class Number:
    """A number as it was written; the value of "45%" is 45."""

    text: str
    value: Fraction
    percent: bool = False

    def is_near(self, other: Number, absolute: float, relative: float) -> bool:
        """Return whether another number is close enough. If one of them alone is a percentage, 45% is 45 and 0.45."""
        values = [other.value]
        if other.percent and not self.percent:
            values.append(other.value / 100)
        if self.percent and not other.percent:
            values.append(other.value * 100)
        allowed = max(Fraction(absolute), Fraction(relative) * abs(self.value))
        return any(abs(self.value - value) <= allowed for value in values)


def find_number(text: str) -> Number | None:
    r"""Return the last number in a text, or that in its last `\boxed{…}`."""
    box = _last_box(text)
    if box is not None and (number := _last_number(box)) is not None:
        return number
    return _last_number(text)


def to_number(value: Any) -> Number | None:
    """Return an expected value as a number, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _last_number(str(value))
    return find_number(value) if isinstance(value, str) else None


def _last_box(text: str) -> str | None:
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    start, depth = text.index("{", start), 0
    for place in range(start, min(len(text), start + MAX_LOOKED_AT)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    return None


def _last_number(text: str) -> Number | None:
    found = None
    for match in _NUMBER.finditer(text[-MAX_LOOKED_AT:].replace("\u2212", "-")):
        if match.group("top") or match.group("over") or match.group("whole") or match.group("part"):
            found = _number(match) or found
    return found


def _number(match: re.Match[str]) -> Number | None:
    groups = match.groupdict()
    sign = -1 if groups["sign"] == "-" else 1
    text = match.group().strip()
    top, bottom = (groups["top"] or groups["over"]), (groups["bottom"] or groups["under"])
    if bottom is not None:
        if int(bottom) == 0:
            return None
        return Number(text, sign * Fraction(int(top), int(bottom)))
    digits = re.sub(r"\D", "", groups["whole"] or "0") + (groups["part"] or "")
    exponent = re.search(r"([-+]?\d+)\}?$", groups["exponent"]) if groups["exponent"] else None
    power = exponent.group(1) if exponent else "0"
    if len(digits) > MAX_DIGITS or len(power) > 6 or abs(int(power)) > MAX_EXPONENT:
        return None
    try:
        value = Fraction(Decimal(f"{digits}E{power}"))
    except InvalidOperation:
        return None
    return Number(text, sign * value, groups["percent"] is not None)


async def compare_in_process(check: Check, answer: str) -> Found:
    """Compare an answer with the expected one, as `compare` does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        _COMPARE,
        *_FOLDERS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    header = json.dumps([check.kind, check.expected], ensure_ascii=False)
    request = b"\n".join(text.encode("utf-8", "surrogatepass") for text in (header, answer))
    try:
        async with asyncio.timeout(check.timeout):
            output, _ = await process.communicate(request)
    except TimeoutError:
        return None, f"the {check.kind} check took longer than {check.timeout:g} s"
    finally:
        await _end(process)
    try:
        passed, detail = json.loads(output)
    except ValueError:
        return None, f"the {check.kind} check could not be tried: its process ended with status {process.returncode}"
    return passed, detail


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(END_S):
            await asyncio.shield(process.wait())


async def check_with_code(task: Task, check: Check, answer: str, sandboxes: Any) -> Found:
    """Run the code of a check.

    What it does counts against the answer: an exception, a timeout or too much memory is a failed check. If its sandbox breaks,
    it is tried once more.
    """
    mark = f"check-{secrets.token_hex(16)}:"
    values = {
        "answer": answer.encode("utf-8", "replace").decode(),
        "expected": check.expected,
        "task": task.model_dump(mode="json", exclude={"check"}),
        "code": check.code,
    }
    program = _PROGRAM.format(values=repr(to_json(values).decode()), mark=repr(mark), most=MAX_DETAIL)
    broke = ""
    for _ in range(2):
        try:
            return _read(await _run(program, check, sandboxes), mark, check)
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            broke = f"{type(error).__name__}: {error}"
    return None, f"the sandbox of the check broke: {broke}"[:MAX_DETAIL]


async def _run(program: str, check: Check, sandboxes: Any) -> Result:
    async with AsyncExitStack() as opened:
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="codeact-check-")
        opened.push_async_callback(asyncio.to_thread, shutil.rmtree, folder, ignore_errors=True)
        executor = await sandboxes.executor(work_dir=Path(folder))
        opened.push_async_callback(_stop, executor)
        await executor.start()
        result: Result = await executor.sandbox.run(program, timeout=check.timeout)
        return result


async def _stop(executor: Any) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await executor.stop()
    except (SandboxError, TimeoutError) as error:
        logger.warning("the sandbox of a check could not be stopped: %s", error)


def _read(result: Result, mark: str, check: Check) -> Found:
    error = result.error
    if result.outcome == "ok":
        return _read_output(result.output, mark)
    if result.outcome == "timeout":
        detail = f"the check took longer than {check.timeout:g} s"
    elif result.outcome == "oom":
        detail = "the check needed too much memory"
    elif error is not None:
        detail = f"the check failed: {error.type}: {error.message}"[:MAX_DETAIL]
    else:
        detail = f"the check failed: it ended as {result.outcome!r}"
    return False, detail


def _read_output(output: str, mark: str) -> Found:
    """Return what the check said, in the last line with its mark."""
    line = output.rpartition(mark)[2].partition("\n")[0] if mark in output else ""
    try:
        passed, detail = json.loads(line)
    except (ValueError, TypeError):
        return False, "the check ended before it had said anything"
    if passed is None:
        return None, str(detail or "the check has set `passed` to None")[:MAX_DETAIL]
    return passed is True, str(detail or "the check has set `passed` to a false value")[:MAX_DETAIL]


async def check_answer(task: Task, answer: str, sandboxes: Any) -> list[CheckResult]:
    """Check the answer of a task."""
    check = check_of(task)
    if check is None:
        return []
    found: Found
    if (problem := _problem(check)) is not None:
        found = None, problem
    elif len(answer) > MAX_ANSWER:
        found = False, f"the answer is too long to check: {len(answer):,} characters"
    elif check.kind == "python":
        found = await check_with_code(task, check, answer, sandboxes)
    elif check.kind == "number":
        found = _check_number(check, answer)
    elif check.kind == "regex" or len(answer) > LONG_ANSWER or not is_small(check.expected):
        found = await compare_in_process(check, answer)
    else:
        found = compare(check.kind, check.expected, answer)
    return [CheckResult(kind=check.kind, passed=found[0], detail=None if found[0] else found[1])]


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
        code = check.code or ""
        too_long = f"check: its code is longer than {MAX_CODE:,} characters" if len(code) > MAX_CODE else None
        return too_long if code.strip() else "check: a python check needs `code`"
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
    return checks[0].passed


def _check_number(check: Check, answer: str) -> Found:
    expected, number = to_number(check.expected), to_number(answer)
    if number is None or expected is None:
        return False, "there is no number in the answer"
    passed = expected.is_near(number, check.tolerance, check.relative)
    return passed, f"expected {shown(expected.text)}, not {shown(number.text)}"
