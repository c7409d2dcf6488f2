"""A program that runs a batch, and kills itself when a certain line is written."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from autogen_codeact.batch import folder
from autogen_codeact.runs.writer import LogWriter
from tests.batch.support import MakeAgent, batch, double
from tests.runs.killed_run import make_client

TASKS = 5


def die_at(point: str) -> None:
    """Have the process killed before, in the middle of, or after a line.

    Args:
        point: When, the file (`log` of a run, or `results`), and the number of the task, such as
            `torn:log:model_call_finished:1`.
    """
    when, file, kind, number = point.split(":")
    append_event, append_row = LogWriter._append, folder.BatchFolder._append

    def die(write: Any, line: bytes) -> None:
        write({"before": b"", "torn": line[: len(line) // 2], "after": line}[when])
        os.kill(os.getpid(), signal.SIGKILL)

    def append_events(self: LogWriter, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            if file == "log" and json.loads(line)["type"] == kind and f"double-{number}" in self.folder.name:
                die(lambda part: append_event(self, part), line)
            append_event(self, line)

    def append_lines(self: folder.BatchFolder, line: bytes) -> int:
        if file == "results" and json.loads(line)["id"] == f"double/{number}":
            die(lambda part: append_row(self, part), line)
        return append_row(self, line)

    LogWriter._append = append_events  # type: ignore[method-assign]
    folder.BatchFolder._append = append_lines  # type: ignore[method-assign]


async def main(out: Path, server: str) -> None:
    """Begin or continue the batch, and print its rows."""
    make = MakeAgent(make_client(server))
    async for row in batch(make, [double(number) for number in range(TASKS)], out, concurrency=1):
        print(row.id, row.outcome, row.answer, flush=True)


def begin() -> None:
    """Read the arguments: the folder, the server's address, and where to die, if at all."""
    out, server, *point = sys.argv[1:]
    for each in point:
        die_at(each)
    asyncio.run(main(Path(out), server))
