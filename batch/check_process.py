"""Comparing answers in a process of its own: a pattern can take years, and no C code of Python can be interrupted."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import pydantic_core

from autogen_codeact.batch.answer_checks import Found
from autogen_codeact.batch.tasks import Check

END_S = 10.0
# Without the rest of the package, whose import takes seconds.
_PROGRAM = "import sys; sys.path += sys.argv[1:]; import answer_checks; answer_checks.main()"
_FOLDERS = [str(Path(each).parents[up]) for each, up in ((__file__, 0), (pydantic_core.__file__, 1))]


async def compare_in_process(check: Check, answer: str) -> Found:
    """Compare an answer with the expected one, as `compare` does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        _PROGRAM,
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
        return None, f"the {_name(check)} took longer than {check.timeout:g} s"
    finally:
        await _end(process)
    try:
        passed, detail = json.loads(output)
    except ValueError:
        return None, f"the {_name(check)} could not be tried: its process ended with status {process.returncode}"
    return passed, detail


def _name(check: Check) -> str:
    return "regex" if check.kind == "regex" else f"{check.kind} check"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(END_S):
            await asyncio.shield(process.wait())
