"""Reading tasks from folders."""

import os
from pathlib import Path

import pytest

from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.batch.tasks import BadTask, Task
from tests.batch.test_reading import read, read_summaries


def test_folder_of_texts_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    for name, text in {
        "b.md": "do b",
        "a.txt": "do a",
        "a.md": "again",
        ".hidden.md": "x",
        "c/task.md": "do c",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "c" / "in.csv").write_text("1")
    (folder / "c" / "more").mkdir()
    (folder / "other.py").write_text("x")
    (folder / "none").mkdir()
    (folder / "d.md").write_bytes(b"\xff")
    (folder / "e.md").write_text("\n")
    os.mkfifo(folder / "f.md")
    (folder / "g.md").symlink_to("nowhere")
    assert read(folder) == [
        Task(id="a", task="again"),
        BadTask("a (tasks/a.txt)", "tasks/a.txt", "its id 'a' is already that of tasks/a.md"),
        Task(id="b", task="do b"),
        Task(id="c", task="do c", files={"in.csv": str(folder / "c/in.csv"), "more": str(folder / "c/more")}),
        BadTask("d", "tasks/d.md", "d.md is not UTF-8"),
        BadTask("e", "tasks/e.md", "e.md is empty"),
        BadTask("f", "tasks/f.md", "f.md is a pipe or a device"),
        BadTask("g", "tasks/g.md", "g.md can't be read: No such file or directory"),
    ]


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_tasks_in_a_folder_have_an_expected_answer_and_other_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In files beside them, which the agent does not get; paths are relative to their folder."""
    put(
        tmp_path,
        tasks__a_md="do a",
        tasks__a_json='{"expected": 6, "check": "number", "data": ["shared"], "level": "easy"}',
        tasks__b_txt="do b\n",
        tasks__b_expected_txt="[0-9]+\n",
        tasks__b_json='{"check": "regex"}',
        tasks__c__task_md="do c",
        tasks__c__expected_txt="7",
        tasks__c__in_csv="1",
        tasks__d__task_json='{"task": "do d", "files": {"x.csv": "in.csv"}}',
        tasks__d__in_csv="1",
        tasks__d__solution_csv="2",
        tasks__other_expected_txt="a task",
        tasks__shared__x="1",
    )
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tasks"
    assert read(Path("tasks")) == [
        Task(
            id="a", task="do a", expected=6, check="number", data=[str(folder / "shared")], metadata={"level": "easy"}
        ),
        Task(id="b", task="do b\n", expected="[0-9]+", check="regex"),
        Task(id="c", task="do c", expected="7", files={"in.csv": str(folder / "c/in.csv")}),
        Task(id="d", task="do d", files={"x.csv": str(folder / "d/in.csv")}),
        Task(id="other.expected", task="a task"),
    ]


def test_bad_files_beside_a_task_are_named(tmp_path: Path) -> None:
    put(
        tmp_path,
        tasks__a_md="do a",
        tasks__a_json="{",
        tasks__b_md="do b",
        tasks__b_json='{"id": "x"}',
        tasks__c__task_json='{"expected": 1}',
        tasks__d__task_json='{"task": "do d", "expected": 1}',
        tasks__d__expected_txt="1",
        tasks__e_md="do e",
        tasks__e_expected_txt="\n",
        tasks__f_md="do f",
        tasks__f_json='{"check": "number"}',
        tasks__g_md="do g",
        tasks__g_json="[1]",
        tasks__h__task_md="do h",
        tasks__h__task_json='{"data": ["none"]}',
    )
    assert read_summaries(tmp_path / "tasks") == [
        "tasks/a.md (a): a.json is not JSON: EOF while parsing an object at line 1 column 1",
        "tasks/b.md (b): b.json has an `id`: leave it out, the name of the task is that of its file or folder",
        "tasks/c (c): it has no `task`",
        "tasks/d (d): it has `expected` in expected.txt and in task.json",
        "tasks/e.md (e): e.expected.txt is empty",
        "tasks/f.md (f): check: 'number' needs `expected`",
        "tasks/g.md (g): g.json is not a JSON object",
        f"tasks/h (h): data: {tmp_path}/tasks/h/none does not exist",
    ]


def test_folder_with_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.md", "wb") as file:
        file.write(b"do it")
    (bad,) = read(tmp_path)
    assert isinstance(bad, BadTask)
    assert bad.id == "?"


def test_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1")
    with pytest.raises(BatchTasksError, match=r"^There are no tasks in "):
        read(tmp_path)
