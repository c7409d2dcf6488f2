"""The folder of a batch on a disk that fails, or that a killed process has left."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_codeact.batch import Task
from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.folder import BatchFolder, run_name
from autogen_codeact.batch.progress import BatchEvent, Notice
from autogen_codeact.batch.results import Row
from autogen_codeact.runs.writer import LogWriter
from tests import processes
from tests.batch.support import MakeAgent, double, lines, rows_of
from tests.cases import case
from tests.texts import ANY


async def test_run_log_that_a_full_disk_ends_is_named_in_the_row(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    append = LogWriter._append

    def append_some(self: LogWriter, data: bytes) -> None:
        if self._size > 8000:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, data)

    monkeypatch.setattr(LogWriter, "_append", append_some)
    events: list[BatchEvent] = []
    (row,) = await rows_of(make, [double(1)], tmp_path, on_event=events.append)
    assert (row.outcome, row.answer) == ("completed", "2")
    assert row.log_problem == "it could not be written"
    assert [event.text for event in events if isinstance(event, Notice)] == [
        "the run log of task 'double/1' is incomplete: it could not be written"
    ]


def row(name: str, outcome: str = "completed", repeat: int = 1) -> Row:
    return Row.model_validate({"id": name, "outcome": outcome, "repeat": repeat, "prompt_tokens": 1})


def task(name: str, text: str = "x") -> Task:
    return Task(id=name, task=text)


def numbers(folder: BatchFolder) -> tuple[int, int, int]:
    return folder.results.counts["rows"], folder.results.counts["failed"], folder.results.counts["prompt_tokens"]


def test_last_row_of_each_task_stays(tmp_path: Path) -> None:
    folder = BatchFolder.open(tmp_path, {})
    for name, outcome, repeat in (("c", "failed", 1), ("a", "completed", 2), ("b", "completed", 1), ("a", "failed", 1)):
        folder.add(row(name, outcome, repeat))
    folder.add(row("c"))
    assert numbers(folder) == (4, 1, 4)
    folder.compact()
    folder.close()

    found = [(each["id"], each["repeat"], each["outcome"]) for each in lines(tmp_path)]
    assert found == [("a", 2, "completed"), ("b", 1, "completed"), ("a", 1, "failed"), ("c", 1, "completed")]
    again = BatchFolder.open(tmp_path, {})
    assert numbers(again) == (4, 1, 4)
    assert [again.is_done(task(name), repeat) for name, repeat in (("a", 1), ("a", 2), ("c", 1))] == [False, True, True]
    failed = again.failed_row(task("a"), 1)
    assert failed is not None
    assert (failed.id, failed.repeat) == ("a", 1)
    again.close()


KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from autogen_codeact.batch import folder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def replace_and_die(part, target, replace=os.replace):
    replace(part, target)
    die()

@contextmanager
def torn(path, open_file=folder.atomic_binary_file, **options):
    with open_file(path, **options) as file:
        yield file
        file.truncate(file.tell() // 2)
        die()

points = {
    "torn": lambda: setattr(folder, "atomic_binary_file", torn),
    "before sync": lambda: setattr(os, "fsync", die),
    "before": lambda: setattr(os, "replace", die),
    "after": lambda: setattr(os, "replace", replace_and_die),
}
for point, patch in points.items():
    if not (child := os.fork()):
        patch()
        folder.BatchFolder.open(Path(sys.argv[1], point), {})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_no_row_is_lost_when_the_process_is_killed_while_rows_are_compacted(tmp_path: Path) -> None:
    points = {"torn": 1, "before sync": 1, "before": 1, "after": 0}
    for point in points:
        folder = BatchFolder.open(tmp_path / point, {})
        for name, outcome in (("b", "completed"), ("a", "failed"), ("a", "completed")):
            folder.add(row(name, outcome))
        folder.close()
    done = processes.run(["-c", KILLED, str(tmp_path)], env=os.environ, timeout=60)
    assert done.stdout.split() == ["-9"] * 4, done.stderr

    for point, parts in points.items():
        assert len(list((tmp_path / point).glob(".*.part"))) == parts
        found = [(each["id"], each["outcome"]) for each in lines(tmp_path / point)]
        whole = [("b", "completed"), ("a", "failed"), ("a", "completed")]
        assert found == (whole if parts else [("b", "completed"), ("a", "completed")])
        again = BatchFolder.open(tmp_path / point, {})
        assert [again.is_done(task(name), 1) for name in "ab"] == [True, True]
        assert (again.results.counts["rows"], again.notices) == (2, [])
        again.close()
        assert sorted(os.listdir(tmp_path / point)) == ["batch.json", "lock", "results.jsonl", "runs"]


def test_damaged_lines_are_told_and_their_tasks_run_again(tmp_path: Path) -> None:
    folder = BatchFolder.open(tmp_path, {})
    for name in "ab":
        folder.add(row(name))
    folder.close()
    results = tmp_path / "results.jsonl"
    first, second = results.read_bytes().splitlines(keepends=True)
    wrong = first.replace(b'"prompt_tokens":1', b'"prompt_tokens":"x"')
    results.write_bytes(first[:20] + b"\n" + wrong + b"[1]\n" + second + second[: len(second) // 2])

    again = BatchFolder.open(tmp_path, {})
    assert [again.is_done(task(name), 1) for name in "ab"] == [False, True]
    assert again.notices == ["3 damaged lines of results.jsonl left out: those tasks are run again"]
    again.close()
    assert results.read_bytes() == second
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir() if each.is_file()}
    assert modes == dict.fromkeys(["batch.json", "lock", "results.jsonl"], 0o600)


@pytest.mark.parametrize("repeat", [1, 2])
def test_changed_task_whose_run_was_killed_is_not_done(tmp_path: Path, repeat: int) -> None:
    def row_of(task: Task, folder: BatchFolder) -> Row:
        log = folder.run_folder(task, repeat).relative_to(tmp_path.absolute())
        return Row(id=task.id, repeat=repeat, outcome="completed", log=f"{log}.2", prompt_tokens=1)

    old, new = task("a"), task("a", "y")
    folder = BatchFolder.open(tmp_path, {})
    folder.compare([old], 2)
    folder.add(row_of(old, folder), old)
    folder.compare([old], 2)
    with pytest.raises(BatchError, match=r"was made with another task 'a'; give another folder, or accept"):
        folder.compare([new], 2)
    folder.close()
    folder = BatchFolder.open(tmp_path, {}, accept_changes=True)
    folder.compare([new], 2)
    folder.close()  # the process is killed while the task runs

    folder = BatchFolder.open(tmp_path, {}, accept_changes=True)
    folder.compare([new], 2)
    assert (folder.is_done(new, repeat), folder.failed_row(new, repeat), numbers(folder)) == (False, None, (1, 0, 1))
    folder.add(row_of(new, folder), new)
    assert (folder.is_done(new, repeat), numbers(folder)) == (True, (1, 0, 1))
    folder.close()
    folder = BatchFolder.open(tmp_path, {})
    folder.compare([new], 2)
    assert (folder.is_done(new, repeat), numbers(folder)) == (True, (1, 0, 1))
    folder.close()


def test_manifest_with_wrong_types_is_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    for configuration in ["[1]", "null", '"x"', "5"]:
        with case(configuration):
            tmp_path = tmp_path_factory.mktemp("case")
            (tmp_path / "batch.json").write_text(f'{{"schema_version": 1, "configuration": {configuration}}}')
            with pytest.raises(BatchError, match=r"batch.json is damaged or not of a batch"):
                BatchFolder.open(tmp_path, {})


@given(st.text(ANY, min_size=1, max_size=200), st.text(ANY, min_size=1, max_size=200))
def test_run_folders_have_names_that_any_file_system_takes(one: str, other: str) -> None:
    names = [run_name(Task(id=name, task="x"), 1).lower() for name in (one, other)]
    assert (names[0] == names[1]) is (one == other)
    for name in names:
        assert len(name) <= 80
        assert name.isascii()
        assert not set(name) & set('/\\:*?"<>| .')
