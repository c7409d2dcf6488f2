"""Regular expressions in a process of their own: a pattern can take years, and Python can't interrupt it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

from autogen_codeact.batch.rows import CheckResult

END_S = 10.0
MAX_SHOWN = 200
MEMORY = 1024 * 1024 * 1024
_PROGRAM = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
pattern = json.loads(sys.stdin.buffer.readline())
text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
try:
    expression = re.compile(pattern)
except (re.error, OverflowError, RecursionError) as error:
    print(json.dumps({{"invalid": str(error)}}))
else:
    print(int(expression.search(text) is not None))
"""


async def check_with_pattern(pattern: str, answer: str, timeout: float) -> CheckResult:
    """Check whether a pattern occurs in an answer.

    Args:
        pattern: The regular expression.
        answer: The answer.
        timeout: Seconds that it may take.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        _PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate(f"{json.dumps(pattern)}\n{answer}".encode("utf-8", "surrogatepass"))
    except TimeoutError:
        detail = f"the regex took longer than {timeout:g} s"
        return CheckResult(kind="regex", passed=None, detail=detail)
    finally:
        await _end(process)
    if output.startswith(b"{"):
        detail = f"check: the regex is not valid: {json.loads(output)['invalid'][:MAX_SHOWN]!r}"
        return CheckResult(kind="regex", passed=None, detail=detail)
    if output.strip() not in (b"0", b"1"):
        detail = f"the regex could not be tried: its process ended with status {process.returncode}"
        return CheckResult(kind="regex", passed=None, detail=detail)
    passed = output.strip() == b"1"
    missing = f"the answer does not match {pattern[:MAX_SHOWN]!r}"
    return CheckResult(kind="regex", passed=passed, detail=None if passed else missing)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(END_S):
            await asyncio.shield(process.wait())
