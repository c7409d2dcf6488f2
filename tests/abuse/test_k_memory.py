"""K4. Reading the folder of a run, whoever has made it, takes at most 256 MB of memory; what would take more is left out."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.runs.folder import MAX_EVENT

from ..runs.logs import lines, whole_run, write_log

MB = 1_000_000
Line = dict[str, Any]
Change = Callable[[Path, list[Line]], list[Line]]


def store(folder: Path, data: bytes, form: str = "json") -> Line:
    """Put a file into the folder of a run; return what a log says of it."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(data).hexdigest()
    (folder / "files" / name).write_bytes(data)
    return {"sha256": name, "size": len(data), "format": form}


def moved(folder: Path, line: Line, place: str, value: bytes) -> None:
    """Put an event with this JSON for a string of it into a file."""
    mark = json.dumps("THE VALUE").encode()
    data = json.dumps(line).encode()
    assert data.count(mark) == 1, place
    line["stored"] = store(folder, data.replace(mark, value))
    for name in set(line) - {"schema_version", "seq", "time", "monotonic", "type", "agent", "number", "stored"}:
        del line[name]


def values(part: bytes, number: int) -> Change:
    """JSON of one form, as part of messages, as a state, and as what a tool has returned."""
    value = b'{"a":[' + b",".join([part] * number) + b"]}"

    def change(folder: Path, log: list[Line]) -> list[Line]:
        for line in log:
            if line["type"] == "message":
                line["message"]["metadata"] = "THE VALUE"
            elif line["type"] == "boundary":
                line["state"] = "THE VALUE"
            elif line["type"] == "block_finished":
                call = {"name": "f", "arguments": {}, "outcome": "ok", "result": "THE VALUE"}
                line["result"]["tool_calls"] = [call]
            else:
                continue
            moved(folder, line, line["type"], value)
        return log[:-1]

    return change


def texts(text: str) -> Change:
    value = json.dumps(text, ensure_ascii=False).encode()

    def change(folder: Path, log: list[Line]) -> list[Line]:
        for line in log:
            if line["type"] == "block_finished":
                line["result"]["output"] = "THE VALUE"
            elif line["type"] == "message" and "result" in line["message"]:
                line["message"]["result"]["output"] = "THE VALUE"
            elif line["type"] == "message":
                line["message"]["content"] = "THE VALUE"
            else:
                continue
            moved(folder, line, line["type"], value)
        return log

    return change


def large_task(folder: Path, log: list[Line]) -> list[Line]:
    log[0]["task"] = "THE VALUE"
    moved(folder, log[0], "task", json.dumps([{"content": "x" * MB}] * 23).encode())
    return log


def displays(size: int, number: int) -> Change:
    def change(folder: Path, log: list[Line]) -> list[Line]:
        file = store(folder, b"\x89PNG" + bytes(size), "bytes")
        shown = [{"name": f"d{each}", "files": {"image/png": file}} for each in range(number)]
        for line in log:
            if line["type"] == "block_finished":
                line["result"]["displays"] = shown
        return log[:-1]

    return change


def states(folder: Path, log: list[Line]) -> list[Line]:
    log[0]["conversation"] = True
    boundary = {**log[-2], "at": "message", "state": "THE VALUE"}
    moved(folder, boundary, "state", b'{"a":"' + b"z" * 20 * MB + b'"}')
    return [log[0], *({**boundary} for _ in range(20))]


def agents(folder: Path, log: list[Line]) -> list[Line]:
    log[0]["agents"] = [{"name": "", "kind": ""}] * 38_000
    return log


def repeated(kind: str, number: int) -> Change:
    def change(folder: Path, log: list[Line]) -> list[Line]:
        (line,) = (each for each in log if each["type"] == kind)
        state = {**log[-2], "at": "start", "state": {}}
        return [log[0], state, *({**line, "agent": f"a{each % 900}", "number": each} for each in range(number))]

    return change


CASES: dict[str, Change] = {
    "texts of 60 MB": texts("x" * 60 * MB),
    "a task of 23 MB": large_task,
    "20 MB of lists": values(b"[]", 20 * MB // 3),
    "20 MB of objects": values(b'{"a":1}', 20 * MB // 8),
    "lists as many as are read": values(b"[]", MAX_EVENT // 160),
    "a text as long as is read": texts("y" * 23 * MB),
    "a wide text": texts("y" * 5 * MB + "\U0001f600"),
    "control characters and lines": texts("\x01\n" * MB),
    "markdown": texts("* a\n" * 16_000),
    "displays as large as are read": displays(20 * MB, 1),
    "500 displays of one file": displays(20 * MB, 500),
    "20 states of a conversation": states,
    "38,000 agents": agents,
    "20,000 blocks without an end": repeated("block_started", 20_000),
}


# Case K4.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("change", CASES.values(), ids=CASES)
def test_a_run_is_read_with_little_memory(tmp_path: Path, change: Change) -> None:
    small = write_log(tmp_path / "small", lines(whole_run()))
    folder = tmp_path / "run"
    log = change(folder, [json.loads(line) for line in lines(whole_run())])
    write_log(folder, [json.dumps({**line, "seq": number}).encode() + b"\n" for number, line in enumerate(log, 1)])
    assert all(line.stat().st_size < 100 * MB for line in folder.rglob("*"))
    command = [sys.executable, "-c", "from tests.abuse.reading import main; main()", small, folder, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert (done.returncode, done.stderr) == (0, ""), done
    _, _, said = done.stdout.partition("---\n")
    assert len(said.splitlines()) == 10, done
    assert "MemoryError" not in said, said
