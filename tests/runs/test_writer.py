"""The log of a run: whole lines in order, large values in files, and disks that fail."""

import json
import logging
import os
import threading
from math import nan

import pytest
from autogen_core.code_executor import CodeResult
from autogen_ext.code_executors._common import CommandLineCodeResult
from pydantic import SecretStr

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.errors import RunFileError
from autogen_codeact.runs.events import BlockFinished, HostCallFinished, LogStopped, MessageLogged, RunFinished
from autogen_codeact.runs.folder import FileStore, RunFolder
from autogen_codeact.runs.redaction import Redaction, known_secrets
from autogen_codeact.runs.results import CallRecord, ResultRecord
from autogen_codeact.runs.writer import LogLocked, LogWriter
from codeact_sandbox.types.displays import Display
from codeact_sandbox.types.result import Artifact, ErrorInfo, NetworkConnection, ToolCall
from codeact_sandbox.types.tool import ToolImage
from tests.runs.logs import started, text
from tests.runs.support import events_of


def lines_of(folder):
    data = (folder / "events.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


async def test_events_are_whole_lines_in_the_order_written(tmp_path):
    writer = await LogWriter.create(tmp_path / "runs" / "42", Redaction())
    for number in range(300):
        writer.put(text(f"{number}"))
    await writer.write(text("last"), sync=True)
    assert len(lines_of(writer.folder)) == 301
    writer.put(RunFinished(outcome="completed"))
    await writer.close()
    events = events_of(writer.folder)
    assert [event.seq for event in events] == list(range(1, 303))
    assert [event.message["content"] for event in events[:-1]] == [*map(str, range(300)), "last"]
    assert events[-1].type == "run_finished"
    assert sorted(path.name for path in writer.folder.iterdir()) == ["events.jsonl"]
    assert (writer.folder / "events.jsonl").stat().st_mode & 0o777 == 0o600


async def test_one_process_at_a_time_writes_a_log(tmp_path):
    writer = await LogWriter.create(tmp_path / "run", Redaction())
    await writer.write(text("one"))
    size = (writer.folder / "events.jsonl").stat().st_size
    with pytest.raises(LogLocked, match="is being written by another process: wait until that run has ended"):
        await LogWriter.extend(writer.folder, Redaction(), last=1, size=size)
    await writer.close()
    with (writer.folder / "events.jsonl").open("ab") as file:
        file.write(b'{"half of a li')
    second = await LogWriter.extend(writer.folder, Redaction(), last=1, size=size)
    await second.write(text("two"))
    await second.close()
    assert [event.message["content"] for event in events_of(writer.folder)] == ["one", "two"]
    assert [event.seq for event in events_of(writer.folder)] == [1, 2]


async def test_large_event_is_a_file_and_comes_back(tmp_path):
    message = {"content": "x" * 100_000, "parts": {f"part {number}/~": number for number in range(100)}, "nan": nan}
    writer = await LogWriter.create(tmp_path / "run", Redaction())
    writer.put(started())
    await writer.write(MessageLogged(message=message))
    await writer.close()
    _, line = lines_of(writer.folder)
    assert set(line) == {"schema_version", "seq", "time", "monotonic", "type", "stored", "mac"}
    _, event = events_of(writer.folder)
    assert event.message["nan"] != event.message["nan"]
    assert {**event.message, "nan": 0} == {**message, "nan": 0}


async def test_results_with_images_calls_and_files_round_trip(tmp_path):
    image = b"\x89PNG\r\n" + bytes(range(256))
    call = ToolCall(
        "search",
        {"query": "a"},
        "error",
        None,
        ErrorInfo("KeyError", "'x'", 3),
        0.5,
        (ToolImage("image/png", image, (2, 2)),),
        ("LookupError",),
    )
    plot = tmp_path / "plot.png"
    plot.write_bytes(image)
    result = ExecutionResult(
        exit_code=1,
        output="a\nb",
        code_file="/x/tmp.py",
        outcome="error",
        value="3",
        error=ErrorInfo("ValueError", "no", 2),
        duration_s=1.5,
        truncated=7,
        artifacts=(
            Artifact("plot.png", len(image), "image/png", plot),
            Artifact("big", 10**9, "text/plain", None, "large"),
        ),
        tool_calls=(call,),
        state="restored",
        connections=(NetworkConnection("example.org", 443, True, 1, 2, None),),
        notes=("a note",),
        number=4,
        restored_before=4,
        displays=(Display("figure-1.png", {"image/png": image, "text/plain": "<Figure>"}, {"a": 1}, plot),),
        files_before={"plot.png": "3:0"},
    )
    folder = tmp_path / "run"
    writer = await LogWriter.create(folder, Redaction())
    writer.put(started())

    def finished(files: FileStore) -> BlockFinished:
        record = ResultRecord.of(result, files.put, lambda each: files.put_file(each.path) if each.path else None)
        return BlockFinished(agent="coder", number=1, result=record)

    await writer.write(finished)
    await writer.close()
    _, event = events_of(folder)

    def read(file):
        return RunFolder(folder).read_file(file)

    again = event.result.result(read)
    assert again == result
    assert (again.number, again.files_before) == (4, {"plot.png": "3:0"})
    assert read(event.result.artifacts[0].file) == image
    assert event.result.artifacts[1].file is None
    assert len(list((folder / "files").iterdir())) == 1


@pytest.mark.parametrize("result", [CodeResult(1, "x"), CommandLineCodeResult(0, "x", None)])
def test_results_of_other_executors_round_trip(result):
    record = ResultRecord.of(result, lambda data: None, lambda each: None)
    again = ResultRecord.model_validate_json(record.model_dump_json()).result(lambda file: b"")
    assert again == result
    assert type(again) is type(result)


def test_files_that_are_too_large_or_no_files_are_left_out(tmp_path):
    store = FileStore(tmp_path, bytes, max_file=10, max_all=15)
    first = store.put(b"0123456789")
    assert store.put(b"0123456789") == first
    assert store.put(b"01234567890").note == "a run's folder keeps files of up to 10 bytes"
    assert store.put(b"abcdefghij").note == "the files of a run's folder may have 15 bytes together"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    assert store.put_file(tmp_path / "pipe") is None
    assert store.put_file(tmp_path / "link") is None
    assert store.put_file(tmp_path / "missing") is None
    with pytest.raises(RunFileError, match="was left out: the files of a run's folder may have 15 bytes together"):
        RunFolder(tmp_path).read_file(store.put(b"abcdefghij"))
    (tmp_path / "files" / first.sha256).write_bytes(b"9876543210")
    with pytest.raises(RunFileError, match="is not what the run has written"):
        RunFolder(tmp_path).read_file(first)


# Secrets


async def test_known_secrets_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", 'env-"secret"-1')
    config = {"api_key": SecretStr("sk-of-the-model"), "default_headers": {"Authorization": "Bearer abcdefghij"}}
    secrets = known_secrets(config)
    assert {"sk-of-the-model", "abcdefghij", 'env-"secret"-1'} <= secrets

    writer = await LogWriter.create(tmp_path / "run", Redaction(secrets))
    text = 'sk-of-the-model abcdefghij env-"secret"-1'
    await writer.write(MessageLogged(message={text: [text, {"deep": text * 5000}]}))
    await writer.write(lambda files: HostCallFinished(agent="a", block=1, call=1, record=call_record(files, text)))
    await writer.close()
    whole = b"".join(path.read_bytes() for path in writer.folder.rglob("*") if path.is_file())
    assert b"[secret] [secret] [secret]" in whole
    for hidden in (b"sk-of", b"abcdefghij", b"env-"):
        assert hidden not in whole
    assert len(list((writer.folder / "files").iterdir())) == 2


def call_record(files, text):
    image = ToolImage("image/png", b"\xff\xfe" + text.encode())
    return CallRecord.of(ToolCall("tool", {"a": text}, "ok", text, images=(image,)), files.put)


async def test_lone_surrogates_and_objects_are_written(tmp_path):
    writer = await LogWriter.create(tmp_path / "run", Redaction())
    await writer.write(MessageLogged(message={"a": "\ud83d", "b": object(), "c": [b"x", ("\udc00",)]}))
    await writer.close()
    (line,) = lines_of(writer.folder)
    assert line["message"] == {"a": "�", "b": "<object>", "c": ["x", ["�"]]}


# Disks that fail


@pytest.mark.parametrize("disk", ["size=256k"], indirect=True)
async def test_full_disk_ends_the_log_once_with_the_reason(disk, caplog):
    caplog.set_level(logging.WARNING)
    writer = await LogWriter.create(disk / "run", Redaction())
    for number in range(100):
        await writer.write(text(f"{number}" * 5000), sync=True)
    await writer.close()
    *events, last = events_of(disk / "run")
    assert 5 < len(events) < 100
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert isinstance(last, LogStopped)
    assert last.reason == "OSError: [Errno 28] No space left on device"
    assert [record.message for record in caplog.records] == [
        f"the run goes on without a log in {disk}/run: OSError: [Errno 28] No space left on device"
    ]


async def test_disk_that_does_not_answer_ends_the_log(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("autogen_codeact.runs.writer.DEADLINE_S", 0.05)
    free = threading.Event()
    writer = await LogWriter.create(tmp_path / "run", Redaction())

    def slow(files):
        free.wait(10)
        return text("slow")

    await writer.write(slow)
    assert writer.stopped == "the disk did not answer within 0.05 s"
    await writer.write(text("dropped"))
    thread = writer._thread  # `close` forgets it once it has ended
    free.set()
    await writer.close()
    thread.join(10)
    assert [event.type for event in events_of(writer.folder)][-1] == "log_stopped"
    assert len(caplog.records) == 1


async def test_nothing_is_written_through_links_in_a_folder_of_somebody_else(tmp_path):
    folder, target = tmp_path / "run", tmp_path / "target"
    writer = await LogWriter.create(folder, Redaction())
    await writer.write(text("first"))
    await writer.close()
    (folder / ".reserve").symlink_to(target)
    target_folder = tmp_path / "elsewhere"
    target_folder.mkdir()
    (folder / "files").symlink_to(target_folder)
    size = (folder / "events.jsonl").stat().st_size
    writer = await LogWriter.extend(folder, Redaction(), last=1, size=size)
    assert not target.exists()
    with pytest.raises(OSError, match="it is a symbolic link"):
        writer.files.put(b"content")
    await writer.close()
    assert list(target_folder.iterdir()) == []


def test_what_is_stored_can_be_read_by_its_owner_only(tmp_path):
    stored = FileStore(tmp_path, bytes).put(b"content")
    assert (tmp_path / "files").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "files" / stored.sha256).stat().st_mode & 0o777 == 0o600
