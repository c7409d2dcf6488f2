"""F 83: risky programs that others have collected; each runs in each sandbox, and the host's canaries stay as they are.

In process mode several run at a time in one sandbox; in a session one comes after the other in one interpreter.
"""

import asyncio
import gzip
import json
from pathlib import Path
from typing import get_args

import pytest

from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.types.result import Outcome
from tests.sandbox.sandboxes import block, run

from .canaries import SECRET
from .subject import Subject

AT_ONCE = 3
SNIPPET_S = 2.0
RESULT_S = 20.0
ALL_OF_THEM = 270


def snippets(folder: Path) -> list[str]:
    """The programs, all of them Python."""
    with gzip.open(folder / "redcode" / "snippets.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["Code"] for line in file]


async def run_all(subject: Subject, codes: list[str]) -> list[ExecutionResult]:
    """Run them, some at the same time where the mode allows it."""
    room = asyncio.Semaphore(1 if subject.session else AT_ONCE)

    async def one(code: str) -> ExecutionResult:
        async with room:
            return await asyncio.wait_for(run(subject.executor, block(code)), RESULT_S)

    return list(await asyncio.gather(*map(one, codes)))


def secrets_of_the_host() -> list[str]:
    """Words that no output may hold."""
    lines = Path("/etc/shadow").read_text().splitlines() if Path("/etc/shadow").exists() else []
    return [SECRET, *(line for line in lines if line.count(":") > 2 and line.split(":")[1] not in ("*", "!", "!*", ""))]


# Case 83.
@pytest.mark.timeout(180)
async def test_risky_snippets_leave_the_canaries_intact(subject: Subject, shared_data: Path) -> None:
    codes = snippets(shared_data)
    assert len(codes) == ALL_OF_THEM
    await subject.start({"timeout": SNIPPET_S}, memory="512m", pids=256, tmp="64m")
    subject.executor.sandbox.timeout = SNIPPET_S
    results = await run_all(subject, codes)
    outcomes = {result.outcome for result in results}
    assert len(results) == ALL_OF_THEM
    assert outcomes <= set(get_args(Outcome))
    assert {"ok", "error"} <= outcomes
    shown = "".join(result.output for result in results)
    assert not [secret for secret in secrets_of_the_host() if secret in shown]
    subject._lost = subject.session and any(result.state == "lost" for result in results)
