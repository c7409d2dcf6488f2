"""Counts the functions and modules of this package that one block passes through on the host.

A block runs in a real bubblewrap sandbox, from `execute_code_blocks` to its result, in session mode with `work_dir`. Each of our
functions that is called in any thread during that time is counted once. After the host's files have changed, a block also lists
`work_dir`; what only such a block calls is counted apart.

Run: python benchmarks/functions_per_block.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor

ROOT = str(Path(__file__).resolve().parents[1])
FOLDERS = ("sandbox", "executors")


def ours(frame: FrameType) -> tuple[str, str] | None:
    """Return module and name of a function of this package, or None."""
    code = frame.f_code
    if not code.co_filename.startswith(ROOT):
        return None
    path = Path(code.co_filename).relative_to(ROOT)
    if path.parts[0] not in FOLDERS or code.co_name.startswith("<"):
        return None
    return str(path), code.co_qualname


Calls = Counter[tuple[str, str]]


async def count() -> tuple[Calls, Calls]:
    """Run some blocks, and count the calls of one, and what the next one calls more after a file has changed."""
    calls: Calls = Counter()
    counting = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if counting and event == "call" and (name := ours(frame)) is not None:
            calls[name] += 1

    threading.setprofile(profile)  # in the threads that are started from here on
    sys.setprofile(profile)
    counted: list[Calls] = []
    with tempfile.TemporaryDirectory() as folder:
        async with BubblewrapCommandLineCodeExecutor(mode="session", work_dir=folder) as executor:
            block = [CodeBlock(code="1 + 1", language="python")]
            for _ in range(5):  # some time after a change, the state of the folder is recorded
                await executor.execute_code_blocks(block, CancellationToken())
                await asyncio.sleep(0.1)
            for change in (None, "a,b"):
                if change is not None:
                    await asyncio.to_thread(Path(folder, "data.csv").write_text, change)
                calls.clear()
                counting = True
                await executor.execute_code_blocks(block, CancellationToken())
                counting = False
                counted.append(Counter(calls))
    threading.setprofile(None)
    sys.setprofile(None)
    plain, after_change = counted
    return plain, Counter({name: number for name, number in after_change.items() if name not in plain})


def main() -> None:
    """Print the functions, by module."""
    plain, listing = asyncio.run(count())
    for heading, calls in (("a plain block", plain), ("more if files of work_dir have changed", listing)):
        print(f"{heading}:")
        for (module, function), number in sorted(calls.items()):
            print(f"{module:40} {function:45} {number}")
        print(
            f"{len(calls)} functions in {len({module for module, _ in calls})} modules, {sum(calls.values())} calls\n"
        )


if __name__ == "__main__":
    main()
