"""Reading tasks: what is good becomes a task, what is bad is named, and nothing ends the reading of the others."""

import asyncio
import csv
import json
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogen_codeact.batch.errors import BatchTasksError
from autogen_codeact.batch.reading import read_tasks
from autogen_codeact.batch.tasks import BadTask, Check, Task
from tests.cases import case
from tests.texts import ANY


def read(source: Any) -> list[Task | BadTask]:
    async def collect() -> list[Task | BadTask]:
        return [task async for task in read_tasks(source)]

    return asyncio.run(collect())


def read_summaries(source: Any) -> list[str]:
    """Return tasks by their ids, and bad ones by place, id and reason."""
    return [t.id if isinstance(t, Task) else f"{t.place} ({t.id}): {t.reason}" for t in read(source)]


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
        "files": ["table.csv"],
        "data": "table.csv",
        "expected": 3,
        "check": "number",
        "level": "hard",
        "metadata": {"source": "x"},
    }
    path = str(tmp_path / "table.csv")
    assert read(lines(tmp_path, json.dumps(row))) == [
        Task(
            id="17",
            task="sum\nit",
            files={"table.csv": path},
            data=[path],
            expected=3,
            check=Check(kind="number"),
            metadata={"level": "hard", "source": "x"},
        )
    ]


BAD_ROWS = [
    ("{", "it is not JSON: EOF while parsing an object at column 1"),
    ('{"id": "x"} {', "it is not JSON: trailing characters at column 13"),
    ("[1]", "it is not a JSON object"),
    ("17", "it is not a JSON object"),
    ("{}", "it has no `id`; it has no `task`"),
    ('{"id": "x", "taks": "t"}', "it has no `task` (but 'taks')"),
    (b'{"id": "x", "task": "\xff"}', "it is not UTF-8 (byte 22 of the line)"),
    (b'{"id": "x", "task": "a\0b"}', "control character"),
    ('{"id": "x", "task": "\\ud800"}', "it is not JSON: unexpected end of hex escape"),
    ('{"id": "x", "task": "t", "more": NaN}', "it is not JSON: expected value"),
    ('{"id": "x", "task": "t", "more": 1e999}', "it is not JSON: it has a number that is too large"),
    ('{"id": "x", "task": "t", "more": ' + "9" * 5000 + "}", "it is not JSON: number out of range"),
    ('{"id": "x", "task": "t", "more": ' + "[" * 100_000 + "}", "it is not JSON: recursion limit exceeded"),
    ('{"id": "", "task": "t"}', "id: string should have at least 1 character"),
    ('{"id": true, "task": "t"}', "id: input should be a valid string"),
    (json.dumps({"id": "x" * 201, "task": "t"}), "id: string should have at most 200 characters"),
    ('{"id": "x", "task": ""}', "task: string should have at least 1 character"),
    ('{"id": "x", "task": 5}', "task: input should be a valid string"),
    ('{"id": "x", "task": null}', "it has no `task`"),
    ('{"id": "x", "task": "t", "metadata": 1}', "metadata: input should be a valid dictionary"),
    ('{"id": "x", "task": "t", "files": {"a": "none.txt"}}', "none.txt does not exist"),
    ('{"id": "x", "task": "t", "files": {"../a": "tasks.jsonl"}}', "files: '../a' is not a path inside the workspace"),
    ('{"id": "x", "task": "t", "files": {"/a": "tasks.jsonl"}}', "files: '/a' is not a path inside the workspace"),
    ('{"id": "x", "task": "t", "files": {"a": "/dev/zero"}}', "files: /dev/zero is neither a file nor a folder"),
    ('{"id": "x", "task": "t", "files": {"a": "b\\u0000"}}', "files: 'b\\x00' is not a path"),
    ('{"id": "x", "task": "t", "files": 3}', "files: input should be a valid dictionary"),
    ('{"id": "x", "task": "t", "data": ["none"]}', "none does not exist"),
    ('{"id": "x", "task": "t", "check": "best"}', "check.kind: input should be 'exact'"),
    ('{"id": "x", "task": "t", "check": {"kind": "exact", "than": 1}}', "check.than: extra inputs are not permitted"),
    ('{"id": "x", "task": "t", "check": "number"}', "check: 'number' needs `expected`"),
    ('{"id": "x", "task": "t", "check": "number", "expected": "many"}', "`expected` is not a number: 'many'"),
    ('{"id": "x", "task": "t", "check": "regex", "expected": "("}', "check: the regex is not valid: 'missing )"),
    ('{"id": "x", "task": "t", "check": "regex", "expected": 5}', "`expected` of a regex has to be a text"),
    (json.dumps({"id": "x", "task": "t", "check": "regex", "expected": "(" * 10_000}), "the regex is not valid"),
    ('{"id": "x", "task": "t", "check": "python"}', "check: a python check needs `code`"),
]


def test_bad_row_is_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    for row, reason in BAD_ROWS:
        with case(row, reason):
            bad, good = read(lines(tmp_path, row, GOOD))
            assert isinstance(bad, BadTask)
            assert bad.place == "tasks.jsonl:1"
            assert reason in bad.reason
            assert len(bad.reason) <= 500
            assert good == Task(id="good", task="do it")


def test_second_task_with_an_id_is_bad_and_the_first_one_stays(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"id": "a", "task": "1"}', "", '{"id": "a", "task": "2"}', '{"id": "line-3", "task": "3"}')
    assert read_summaries(path) == [
        "a",
        "tasks.jsonl:3 (line-3): another task has its id 'a'",
        "tasks.jsonl:4 (line-4): another task has its id 'line-3'",
    ]


def test_bad_rows_have_different_ids(tmp_path: Path) -> None:
    rows = read(lines(tmp_path, '{"id": "line-2", "task": 1}', "{", "{", '{"id": "line-2"}'))
    assert [row.id for row in rows] == ["line-2", "line-2 (tasks.jsonl:2)", "line-3", "line-2 (tasks.jsonl:4)"]


def test_ids_with_slashes_dots_and_control_characters_are_kept(tmp_path: Path) -> None:
    ids = ["a/b", "../../etc", ".", "con", "A", "a", "x\u0007\u202e", "\n", "é", "e\u0301"]
    assert read_summaries(lines(tmp_path, *(json.dumps({"id": each, "task": "t"}) for each in ids))) == ids


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = lines(tmp_path, b"\xef\xbb\xbf" + GOOD.encode() + b"\r", '{"id": 2, "task": "t"}\r', "\r", "")
    assert read_summaries(path) == ["good", "2"]


def test_row_of_a_quarter_of_a_gigabyte_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    with open(path, "wb") as file:
        file.write(b'{"id": "long", "task": "' + b"x" * 8192)
        file.truncate(256 * 1024**2)  # a hole: it takes no space on the disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + GOOD.encode())
    tracemalloc.start()
    try:
        assert read_summaries(path) == ["tasks.jsonl:1 (line-1): it is longer than 16 MiB", "good"]
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_row_just_below_the_limit_is_read(tmp_path: Path) -> None:
    row = json.dumps({"id": "a", "task": "x" * (16 * 1024 * 1024 - 24)})
    assert len(row) == 16 * 1024 * 1024 - 1
    assert read_summaries(lines(tmp_path, row, row[:-2] + "xx" + '"}')) == [
        "a",
        "tasks.jsonl:2 (line-2): it is longer than 16 MiB",
    ]


def test_unusable_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    cases: list[Any] = [
        ("tasks.jsonl", b"", "There are no tasks in"),
        ("tasks.jsonl", b"\n \n", "There are no tasks in"),
        ("tasks.jsonl", b"\x1f\x8b\x08\0", "is not a text file: tasks are JSONL or CSV, as UTF-8."),
        ("tasks.jsonl", b"\0\xff\xfe" * 10, "is not a text file"),
        ("tasks.jsonl", '{"id"'.encode("utf-16"), "is not a text file: tasks are JSONL or CSV, as UTF-8."),
        ("tasks.json", b'[{"id": 1}]', "is one JSON list: write one object a line"),
        ("tasks.yaml", b"- id: 1", "is of an unknown form: name it *.jsonl or *.csv"),
        ("tasks.csv", b"", "has no columns `id` and `task` in its first line"),
        ("tasks.csv", b"name,task\n1,2\n", "has no columns `id` and `task` in its first line"),
        ("tasks.csv", b"id,task,x,x\n1,2,3,4\n", "has two columns with the name 'x'"),
        ("tasks.csv", b"id,task\n", "There are no tasks in"),
    ]
    for name, content, message in cases:
        with case(name, content, message):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(BatchTasksError) as caught:
                read(path)
            assert message in str(caught.value)
            assert str(path) in str(caught.value)


def test_missing_file_pipe_and_device_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tasks.jsonl")
    with pytest.raises(
        BatchTasksError,
        match=r"tasks\.jsonl is a pipe or a device: write the tasks to a file first, one JSON object a line\.$",
    ):
        read(tmp_path / "tasks.jsonl")
    with pytest.raises(BatchTasksError, match=r"^There are no tasks at .*none\.jsonl: no such file\.$"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(BatchTasksError, match="is a pipe or a device"):
        read("/dev/zero")
    with pytest.raises(BatchTasksError, match="is a folder: write the tasks to a file first"):
        read(tmp_path)


def test_csv_with_quotes_and_all_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    path = lines(
        tmp_path,
        "\ufeffid,task,files,data,expected,check,level\r",
        '1,"two\r',
        'lines, and ""quotes""","{""b"": ""a.txt""}",a.txt,"1,234",number,hard\r',
        '2,a 5" pipe,,,,,\r',
        "\r",
        '3,t,,,,"{""kind"": ""regex"", ""expected"": ""x+""}",easy',
        name="tasks.csv",
    )
    a = str(tmp_path / "a.txt")
    number, pipe, regex = read(path)
    assert number == Task(
        id="1",
        task='two\r\nlines, and "quotes"',
        files={"b": a},
        data=[a],
        expected="1,234",
        check=Check(kind="number"),
        metadata={"level": "hard"},
    )
    assert pipe == Task(id="2", task='a 5" pipe', metadata={"level": ""})
    assert regex == Task(id="3", task="t", check=Check(kind="regex", expected="x+"), metadata={"level": "easy"})


def test_other_delimiters_of_csv_are_found(tmp_path: Path) -> None:
    cases: list[Any] = [";", "\t"]
    for delimiter in cases:
        with case(delimiter):
            path = lines(tmp_path, f"task{delimiter}id", f'"a,b"{delimiter}1', name="tasks.csv")
            assert read(path) == [Task(id="1", task="a,b")]


def test_bad_csv_rows_are_named_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        "id,task,files",
        "1,t",
        "2,t,,",
        "3,t,{",
        b"4,\xff,",
        ",t,",
        '5,"not closed,',
        "6,t,",
        "6,t,",
        "7,a\rb,",
        "8,a\0b,",
        name="tasks.csv",
    )
    assert read_summaries(path) == [
        "tasks.csv:2 (line-2): it has 2 columns, and the header has 3",
        "tasks.csv:3 (line-3): it has 4 columns, and the header has 3",
        "tasks.csv:4 (line-4): column 'files' is not JSON: EOF while parsing an object at line 1 column 1",
        "tasks.csv:5 (line-5): column 'task' is not UTF-8",
        "tasks.csv:6 (line-6): it has no `id`",
        "tasks.csv:7 (line-7): a quote that begins here is not closed",
        "6",
        "tasks.csv:9 (line-9): another task has its id '6'",
        "tasks.csv:10 (line-10): it is not CSV: it has a carriage return that is not in quotes",
        "8",
    ]


def test_csv_row_that_is_too_long_is_skipped(tmp_path: Path) -> None:
    long = b"x" * (1024 * 1024 - 1)
    path = lines(
        tmp_path, "id,task", b'1,"' + b"\n".join([long] * 16), "2,t", b"3," + long * 17, "4,t", name="tasks.csv"
    )
    found = read_summaries(path)
    assert found[0] == "tasks.csv:2 (line-2): a quote that begins here is not closed"
    assert found[-3:] == ["2", "tasks.csv:19 (line-19): it is longer than 16 MiB", "4"]


def test_items_of_an_iterable_are_checked_like_rows() -> None:
    loop: dict[str, Any] = {"id": "loop", "task": "t"}
    loop["self"] = loop
    items: list[Any] = [
        "first",
        Task(id="a", task="t", metadata={"x": 1}),
        {"id": "b", "task": "t", "level": 2},
        {"id": "a", "task": "t"},
        {"id": "c", "task": "\ud800"},
        {"id": "\ud800", "task": "t"},
        Task.model_construct(id="d", task=""),
        7,
        None,
        loop,
        {"id": "e", "task": "t", "x": object()},
        {"id": "f", "task": "t", "x": float("nan")},
        {"id": "g", "task": "x" * 17 * 1024 * 1024},
        BadTask("h", "elsewhere:5", "no good"),
    ]
    found = read(items)
    assert found[:3] == [
        Task(id="1", task="first"),
        Task(id="a", task="t", metadata={"x": 1}),
        Task(id="b", task="t", metadata={"level": 2}),
    ]
    bad = [each for each in found[3:] if isinstance(each, BadTask)]
    assert [(each.id, each.place) for each in bad] == [
        ("task-4", "task 4"),
        ("c", "task 5"),
        ("task-6", "task 6"),
        ("d", "task 7"),
        ("task-8", "task 8"),
        ("task-9", "task 9"),
        ("loop", "task 10"),
        ("e", "task 11"),
        ("f", "task 12"),
        ("g", "task 13"),
        ("h", "elsewhere:5"),
    ]
    assert bad[0].reason == "another task has its id 'a'"
    assert bad[4].reason == "a int is not a task: give a Task, a mapping or a text"
    assert bad[-2].reason == "it is longer than 16 MiB"


async def test_async_iterable_is_closed_when_the_reader_is() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "again"
        finally:
            closed.set()

    tasks = read_tasks(endless())
    assert [(await anext(tasks)).id, (await anext(tasks)).id] == ["1", "2"]
    await tasks.aclose()
    assert closed.is_set()


async def test_exception_of_an_iterable_reaches_the_caller() -> None:
    def broken() -> Any:
        yield "one"
        raise RuntimeError("no more")

    tasks = read_tasks(broken())
    assert (await anext(tasks)).id == "1"
    with pytest.raises(RuntimeError, match="no more"):
        await anext(tasks)


async def test_source_of_a_wrong_type_is_an_error() -> None:
    cases: list[Any] = [5, {"id": "a", "task": "t"}, Task(id="a", task="t"), b"tasks.jsonl"]
    for source in cases:
        with case(source), pytest.raises(TypeError, match=r"^tasks has to be a path or an iterable of tasks, not "):
            await anext(read_tasks(source))


async def test_empty_iterable_is_an_error() -> None:
    with pytest.raises(BatchTasksError, match="There are no tasks in the iterable"):
        await anext(read_tasks([]))


def test_many_ids_take_little_memory(tmp_path: Path) -> None:
    path = lines(tmp_path, *(f'{{"id": "{number}-{"x" * 180}", "task": "t"}}' for number in range(5_000)))

    async def count() -> int:
        return len([None async for task in read_tasks(path) if isinstance(task, Task)])

    tracemalloc.start()
    try:
        assert asyncio.run(count()) == 5_000
        assert tracemalloc.get_traced_memory()[1] < 2_500_000  # the ids alone would take 1.2 MB, the tasks 10 MB
    finally:
        tracemalloc.stop()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(ANY, max_size=5), inner, max_size=3),
    max_leaves=10,
)
rows = st.dictionaries(
    st.sampled_from(["id", "task", "files", "data", "expected", "check", "metadata", "more"]), json_values
)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=300), form=st.sampled_from(["jsonl", "csv", "json", "other"]))
def test_any_bytes_are_tasks_bad_tasks_or_an_error_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, form: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{form}"
    path.write_bytes((b"id,task\n" if form == "csv" else b"") + content)
    try:
        found = read(path)
    except BatchTasksError:
        return
    assert len({task.id for task in found}) == len(found)
    assert all(isinstance(task, Task) or task.reason for task in found)


@settings(max_examples=150, deadline=None)
@given(items=st.lists(rows | json_values, min_size=1, max_size=4))
def test_any_objects_are_tasks_or_bad_tasks(items: list[Any]) -> None:
    found = read(items)
    assert len(found) == len(items)
    assert len({task.id for task in found}) == len(found)


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30),
        min_size=1,
        max_size=5,
    )
)
def test_tasks_written_by_the_csv_module_are_read_unchanged(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [["id", "task"], *([str(number), text] for number, text in enumerate(texts))]
        )
    assert [task.task for task in read(path) if isinstance(task, Task)] == texts
