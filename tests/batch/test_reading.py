"""Reading tasks: what is good becomes a task, what is bad is named, and nothing ends the reading of the others."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.tasks import BadTask, Check, Task, read_tasks


def read_summaries(source: Any) -> list[str]:
    """Return tasks by their ids, and bad ones by place and reason."""
    return [t.id if isinstance(t, Task) else f"{t.place}: {t.reason}" for t in read_tasks(source)]


def lines(tmp_path: Path, *rows: str | bytes, name: str = "tasks.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(b"\n".join(row.encode() if isinstance(row, str) else row for row in rows))
    return path


GOOD = '{"id": "good", "task": "do it"}'


def test_all_fields_of_a_row_are_read(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b")
    row = {
        "id": 17,
        "task": "sum\nit",
        "files": {"t.csv": "table.csv"},
        "data": "table.csv",
        "expected": 3,
        "check": "number",
        "level": "hard",
        "metadata": {"source": "x"},
    }
    path = str(tmp_path / "table.csv")
    assert read_tasks(lines(tmp_path, json.dumps(row))) == [
        Task(
            id="17",
            task="sum\nit",
            files={"t.csv": path},
            data=[path],
            expected=3,
            check=Check(kind="number"),
            metadata={"level": "hard", "source": "x"},
        )
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "it is not JSON: EOF while parsing an object"),
        ("[1]", "it is not a JSON object"),
        ("{}", "id: Field required; task: Field required"),
        (b'{"id": "x", "task": "\xff"}', "it is not JSON: invalid unicode code point"),
        ('{"id": "x", "task": "\\ud800"}', "it is not JSON: unexpected end of hex escape"),
        ('{"id": "x", "task": "t", "more": NaN}', "it is not JSON: expected value"),
        ('{"id": "x", "task": "t", "more": ' + "[" * 100_000 + "}", "it is not JSON: recursion limit exceeded"),
        (json.dumps({"id": "x" * 201, "task": "t"}), "id: String should have at most 200 characters"),
        ('{"id": "x", "task": ""}', "task: String should have at least 1 character"),
        ('{"id": "x", "task": "t", "files": {"a": "none.txt"}}', "none.txt is neither a file nor a folder"),
        ('{"id": "x", "task": "t", "files": {"../a": "tasks.jsonl"}}', "'../a' is not a path inside the workspace"),
        ('{"id": "x", "task": "t", "files": {"/a": "tasks.jsonl"}}', "'/a' is not a path inside the workspace"),
        ('{"id": "x", "task": "t", "files": {"a": "/dev/zero"}}', "/dev/zero is neither a file nor a folder"),
        ('{"id": "x", "task": "t", "files": {"a": "b\\u0000"}}', "is neither a file nor a folder"),
        ('{"id": "x", "task": "t", "data": [3]}', "data.0: Input should be a valid string"),
        ('{"id": "x", "task": "t", "check": "best"}', "check.kind: Input should be 'exact'"),
        ('{"id": "x", "task": "t", "check": "number"}', "check: 'number' needs `expected`"),
    ],
)
def test_bad_row_is_named_and_the_next_one_is_read(tmp_path: Path, row: str | bytes, reason: str) -> None:
    bad, good = read_tasks(lines(tmp_path, row, GOOD))
    assert isinstance(bad, BadTask)
    assert bad.place == "tasks.jsonl:1"
    assert reason in bad.reason
    assert good == Task(id="good", task="do it")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("tasks.txt", b"", r"tasks\.txt: name a file of tasks \*\.jsonl \(a JSON object in each line\) or \*\.csv\.$"),
        ("tasks.jsonl", b"\n \n", r"^There are no tasks in .*tasks\.jsonl\.$"),
        ("tasks.csv", b"id,text\n1,x\n", r"tasks\.csv has no columns `id` and `task` in its first line\.$"),
        ("tasks.csv", b"id,task\n1,\xff\n", r"tasks\.csv is not CSV in UTF-8, near line "),
        ("tasks.csv", b'id,task\n1,"' + b"x" * 17 * 2**20, r"tasks\.csv is not CSV in UTF-8, near line "),
        ("tasks.jsonl", b"1" * 17 * 2**20, r"^tasks\.jsonl:1 is longer than 16 MiB\.$"),
    ],
    ids=["name", "empty", "header", "encoding", "field", "line"],
)
def test_file_that_is_unusable_as_a_whole_is_an_error(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    with pytest.raises(BatchError, match=error):
        read_tasks(lines(tmp_path, content, name=name))


def test_csv_has_json_in_the_columns_of_lists_and_objects(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    path = lines(
        tmp_path,
        "id,task,files,data,check,expected,level",
        '1,"a, b","{""x"": ""a.txt""}",a.txt,number,5,',
        '2,"a 5"" pipe",,"[""a.txt""]","{""kind"": ""regex""}",x+,easy',
        name="tasks.csv",
    )
    file = str(tmp_path / "a.txt")
    assert read_tasks(path) == [
        Task(
            id="1",
            task="a, b",
            files={"x": file},
            data=[file],
            check=Check(kind="number"),
            expected="5",
            metadata={"level": ""},
        ),
        Task(
            id="2", task='a 5" pipe', data=[file], check=Check(kind="regex"), expected="x+", metadata={"level": "easy"}
        ),
    ]


def test_bad_csv_rows_are_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = lines(tmp_path, "id,task,files", "1,t", "2,t,,", "3,t,{", ",t,", "6,t,", "6,t,", name="tasks.csv")
    assert read_summaries(path) == [
        "tasks.csv:2: it has more or fewer columns than the header",
        "tasks.csv:3: it has more or fewer columns than the header",
        "tasks.csv:4: column 'files': it is not JSON: EOF while parsing an object at line 1 column 1",
        "tasks.csv:5: id: Field required",
        "6",
        "tasks.csv:7: another task has its id '6'",
    ]


def test_items_of_an_iterable_are_checked_like_rows() -> None:
    loop: dict[str, Any] = {"id": "loop", "task": "t"}
    loop["self"] = loop
    assert read_tasks(["first", Task(id="a", task="t"), {"id": "b", "task": "t", "level": 2}]) == [
        Task(id="1", task="first"),
        Task(id="a", task="t"),
        Task(id="b", task="t", metadata={"level": 2}),
    ]
    bad: list[Any] = [
        {"id": "c", "task": "\ud800"},
        Task.model_construct(id="d", task=""),
        7,
        loop,
        {"id": "e", "task": "t", "x": object()},
        BadTask("elsewhere:5", "no good"),
    ]
    places = [each.place for each in read_tasks(bad) if isinstance(each, BadTask)]
    assert places == ["task 1", "task 2", "task 3", "task 4", "task 5", "elsewhere:5"]


@pytest.mark.parametrize("source", [5, {"id": "a", "task": "t"}, Task(id="a", task="t"), b"tasks.jsonl"])
def test_source_of_a_wrong_type_is_an_error(source: Any) -> None:
    with pytest.raises(TypeError, match=r"^tasks has to be a path or an iterable of tasks, not "):
        read_tasks(source)


def test_empty_iterable_is_an_error() -> None:
    with pytest.raises(BatchError, match="There are no tasks in the iterable"):
        read_tasks([])


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=300), form=st.sampled_from(["jsonl", "csv"]))
def test_any_bytes_are_tasks_bad_tasks_or_an_error_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, form: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{form}"
    path.write_bytes((b"id,task\n" if form == "csv" else b"") + content)
    try:
        found = read_tasks(path)
    except BatchError:
        return
    assert all(isinstance(task, Task) or task.reason for task in found)
