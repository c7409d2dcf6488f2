"""Checks that are code: each runs in a sandbox of its own, which no agent has used."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from autogen_codeact.batch.answer_checks import Found
from autogen_codeact.batch.tasks import Check, Task
from codeact_sandbox.types.errors import SandboxError, SandboxUnavailable
from codeact_sandbox.types.result import Result

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
