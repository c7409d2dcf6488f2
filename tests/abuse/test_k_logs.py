"""K2 to K4. Code neither reads nor changes the log of its run, and reading any run takes at most 256 MB of memory."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.batch.folder import WORK, BatchFolder
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.folder import MAX_EVENT
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.writer import LogWriter
from codeact_sandbox import SandboxFileError

from ..cli.support import codeact, start, wait_until
from ..runs.logs import lines, started, text, whole_run, write_log
from .subject import Subject

LIST = """
import os
print(sorted(os.path.join(at, name) for at, _, names in os.walk(".") for name in names if not name.startswith("tmp_code")))
"""
WRITE = """
import os
for name in {names!r}:
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "w").write("planted")
"""


# Case K2.
async def test_a_log_in_the_workspace_is_neither_sent_nor_stored(subject: Subject) -> None:
    await subject.start({"delete_tmp_files": True})
    run, batch = subject.work_dir / "runs" / "42", subject.work_dir / "batch"
    writer = await LogWriter.create(run, Redaction())
    tasks = BatchFolder.open(batch, {})
    try:
        await writer.write(started(), sync=True)
        (subject.work_dir / "runs" / "beside").write_text("seen")
        (subject.work_dir / "by-link").symlink_to(run)
        assert (await subject.out(LIST)) == "['./runs/beside']\n"
        names = [
            "runs/42/events.jsonl",
            "runs/42/files/x",
            "batch/results.jsonl",
            f"batch/{WORK}/x",
            "made",
            "by-link/new",
        ]
        result = await subject.run(WRITE.format(names=names))
        assert result.error is not None
        assert result.error.type == "FilesNotStored"
        notes = {each.name: each.note for each in result.artifacts if each.note}
        assert set(notes) == {name for name in names if not name.startswith(("made",))}, result
        assert "keeps the log of a run, a batch" in str(notes["runs/42/events.jsonl"])
        renamed = run.rename(subject.work_dir / "renamed")  # by inode, not by name
        result = await subject.run(WRITE.format(names=["renamed/events.jsonl"]))
        assert [each.note is None for each in result.artifacts] == [False], result
        await writer.write(text("still here"), sync=True)
    finally:
        await writer.close()
        tasks.close()
    assert {*os.listdir(renamed)} <= {"events.jsonl", ".reserve"}
    assert b"planted" not in (renamed / "events.jsonl").read_bytes() + (batch / "results.jsonl").read_bytes()
    assert (subject.work_dir / "made").read_text() == "planted"
    await subject.check_next_block()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that the sandbox's user can reach; pytest's own are closed to it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o777)
        yield Path(name)


# Case K2.
async def test_a_log_around_the_workspace_or_in_a_mounted_folder_is_refused(reachable: Path) -> None:
    tmp_path = reachable
    writer = await LogWriter.create(tmp_path / "run", Redaction())
    try:
        executor = BubblewrapCommandLineCodeExecutor(work_dir=tmp_path / "run" / "work")
        with pytest.raises(SandboxFileError, match="Use another work_dir"):
            await executor.start()
        for bind in (tmp_path, tmp_path / "run", tmp_path / "run" / "below"):
            bind.mkdir(exist_ok=True)
            with pytest.raises(SandboxFileError, match="Use a folder beside them"):
                await BubblewrapCommandLineCodeExecutor(bind_dir=bind).start()
    finally:
        await writer.close()
    async with BubblewrapCommandLineCodeExecutor(bind_dir=tmp_path):
        with pytest.raises(RunFolderError, match=r"mounted in a sandbox \(bind_dir=\): use another one"):
            await LogWriter.create(tmp_path / "second", Redaction())


# Case K3.
@pytest.mark.usefixtures("bubblewrap")
def test_code_of_a_log_is_run_unasked_only_if_the_user_has_made_it(tmp_path: Path) -> None:
    """An approved block removes the approval from the log; and what a copied or changed log says."""
    proof = "open('proof', 'w').write('unasked')"
    attack = "\n".join(
        [
            "import os, time",
            "for at, _, names in os.walk('.'):",
            "    for name in names:",
            "        path = os.path.join(at, name)",
            "        text = open(path, 'rb').read()",
            "        open(path, 'wb').write(text.replace(b'approval_func', b''))",
            "open('done', 'w').write('')",
        ]
    )
    answers = [f"```python\n{each}\n```" for each in (attack, "import time\ntime.sleep(60)", proof)]
    (tmp_path / "answers.json").write_text(json.dumps([*answers, "Done."]))
    work = tmp_path / "work"
    work.mkdir()
    options = ["--model", f"replay:{tmp_path / 'answers.json'}", "--sandbox", "bubblewrap", "--work-dir", ".", "--act"]
    log = work / "runs" / "42" / "events.jsonl"
    with start("run", "Go.", *options, "--save", "runs/42", cwd=work) as process:
        wait_until(lambda: log.exists() and log.read_bytes().count(b'"block_started"') == 2, "the second block")
        process.kill()
    assert (work / "done").exists()
    copy = tmp_path / "copy"
    shutil.copytree(log.parent, copy)
    changed = tmp_path / "changed"
    assert make_plan(log.parent).chain is not None
    lines = log.read_bytes()
    log.write_bytes(lines.replace(b"time.sleep(60)", b"time.sleep(61)"))
    assert make_plan(log.parent).chain is None
    shutil.copytree(log.parent, changed)
    log.write_bytes(lines)
    for folder, arguments in ((copy, ["--trust"]), (changed, ["--trust"]), (log.parent, ["--approve"])):
        before = (folder / "events.jsonl").read_bytes()
        done = codeact("resume", folder, *arguments, cwd=work)
        assert "not approved" in done.out, (folder, done)  # there is no terminal to ask in
        assert not (work / "proof").exists(), folder
        (folder / "events.jsonl").write_bytes(before)
    refused = codeact("resume", copy, cwd=work)
    assert refused.status == 2
    assert "was not made by you on this machine" in refused.err
    done = codeact("resume", log.parent, cwd=work)
    assert (done.status, (work / "proof").read_text()) == (0, "unasked"), done


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
