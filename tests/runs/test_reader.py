"""Reading the log of a run: whole, damaged, too new, and written by somebody who means harm."""

import hashlib
import json
import os
import tracemalloc

import pytest

from autogen_codeact.runs import export_files, load_run
from autogen_codeact.runs.errors import RunError, RunFileError, RunFolderError
from autogen_codeact.runs.events import BlockFinished, MessageLogged
from autogen_codeact.runs.reader import Gap
from autogen_codeact.runs.results import ArtifactRecord, DisplayRecord, ResultRecord, StoredFile
from autogen_codeact.runs.writer import MAX_LINE
from tests.cases import case
from tests.runs.logs import changed, lines, started, text, whole_run, write_log

DAMAGED = "the line is damaged: "


def texts(run):
    """Return the texts of a run's messages, and its gaps and unknown events as they are."""
    return [
        each.message["content"] if isinstance(each, MessageLogged) else each
        for each in run
        if each.type != "run_started"
    ]


def log_of(tmp_path, *middle, end=b""):
    """Return the folder of a log: the start, message "a", the given lines, and message "b" with number 4."""
    first, a, _, b = lines([started(), text("a"), text("lost"), text("b")])
    return write_log(tmp_path / "run", [first, a, *middle, b, end])


def test_events_of_a_run_come_back_in_order_as_they_were(tmp_path):
    events = whole_run()
    written = lines(events)
    run = load_run(write_log(tmp_path, written))
    assert run.started.task == [{"type": "TextMessage", "content": "What is 6*7?", "source": "user"}]
    read = list(run)
    assert [type(each) for each in read] == [type(each) for each in events]
    assert [each.model_dump_json().encode() + b"\n" for each in read] == written
    assert list(run) == read


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        (b'{"type": "message", "se\n', Gap(3, DAMAGED + "it is not JSON")),
        (b"\x00" * 50 + b"\n", Gap(3, DAMAGED + "it is not JSON")),
        (b"\xff\xfe\n", Gap(3, DAMAGED + "it is not JSON")),
        (b"[" * 100_000 + b"\n", Gap(3, DAMAGED + "it is not JSON")),
        (b'{"a":' * 100_000 + b"\n", Gap(3, DAMAGED + "it is not JSON")),
        (b"9" * 10_000 + b"\n", Gap(3, DAMAGED + "it is not JSON")),
        (b"[]\n", Gap(3, DAMAGED + "it is not an event")),
        (b'{"type": 3, "seq": 3}\n', Gap(3, DAMAGED + "it is not an event")),
        (b'{"type": "message", "seq": true}\n', Gap(3, DAMAGED + "the event has no number")),
        (b"\n\n{\n", Gap(3, DAMAGED + "it is not JSON", lines=3)),
        (b"", Gap(3, "events are missing before this line: 1", lines=0)),
        (lines([text("a")])[0], Gap(3, "event 1 is there twice, or in a wrong place")),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_damaged_line_is_a_gap_and_the_rest_is_read(tmp_path, line, gap):
    assert texts(load_run(log_of(tmp_path, line))) == ["a", gap, "b"]


def test_a_line_that_is_too_long_is_a_gap(tmp_path):
    line = b'{"type": "' + b"x" * MAX_LINE + b"\n"
    gap = Gap(3, f"the line has {len(line) - 1:,} bytes; at most {MAX_LINE:,} are read")
    assert texts(load_run(log_of(tmp_path, line))) == ["a", gap, "b"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"message": 3}, "this is not an event of type message: message.message: Input should be a valid dictionary"),
        ({"extra": 3}, "this is not an event of type message: message.extra: Extra inputs are not permitted"),
        (
            {"time": "\x1b[2Jnow"},
            "this is not an event of type message: message.time: Input should be a valid datetime",
        ),
        ({"stored": 3}, "this is not an event of type message: : Input should be a valid dictionary"),
        ({"stored": {"sha256": None, "size": 1, "note": "why"}}, "A file of"),
    ],
)
def test_an_event_with_wrong_fields_is_a_gap(tmp_path, fields, reason):
    line = changed(lines([started(), text("a"), text("c")])[2], **fields)
    a, gap, b = texts(load_run(log_of(tmp_path, line)))
    assert (a, b, gap.line) == ("a", "b", 3)
    assert gap.reason.startswith(reason)
    assert gap.reason.isprintable()


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_the_end_of_a_log_that_was_cut_off_is_a_gap(tmp_path, cut):
    last = lines([started()] * 5)[4][:cut]
    folder = log_of(tmp_path, lines([started(), text("a"), text("c")])[2], end=last)
    assert texts(load_run(folder)) == ["a", "c", "b", Gap(5, "the last line is incomplete", cut_off=True)]


def test_an_event_of_an_unknown_type_is_a_gap(tmp_path):
    line = b'{"type": "from_the_future", "seq": 3, "schema_version": 1, "more": [1]}\n'
    a, unknown, b = texts(load_run(log_of(tmp_path, line)))
    assert (a, unknown, b) == ("a", Gap(3, "this version does not know events of type from_the_future"), "b")


def test_a_log_of_a_newer_version_is_refused(tmp_path_factory):
    for number in [1, 3]:
        for version in [2, "\x1b[2J", None]:
            with case(version, number):
                tmp_path = tmp_path_factory.mktemp("case")
                content = lines([started(), text("a"), text("b")])
                content[number - 1] = changed(content[number - 1], schema_version=version, type="from_the_future")
                folder = write_log(tmp_path / "run", content)
                with pytest.raises(RunError) as caught:
                    list(load_run(folder))
                shown = str(version).replace("\x1b", "\\x1b")
                assert str(caught.value) == (
                    f"A newer version of this package has written {folder} (schema {shown} in line {number}; "
                    "this version reads up to 1). Update autogen-codeact to read it."
                )


# What is no run


def test_a_folder_that_is_not_there_or_no_run_is_refused(tmp_path):
    hint = "Give the folder of a run, as in `codeact run --save FOLDER`."
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    expected = {
        "nothing": f"{tmp_path}/nothing does not exist. {hint}",
        "file": f"{tmp_path}/file is not a folder. {hint}",
        "folder": f"{tmp_path}/folder is not a run: it has no events.jsonl.",
    }
    for name, words in expected.items():
        with pytest.raises(RunFolderError) as caught:
            load_run(tmp_path / name)
        assert str(caught.value) == words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "{log} is empty: the run ended before it began."),
        (
            b'{"ty',
            "{run} can't be read: its log does not begin with the start of a run (line 1: the last line is incomplete).",
        ),
        (
            lines([text("a")])[0],
            "{run} can't be read: its log does not begin with the start of a run (its first event is another one).",
        ),
    ],
)
def test_a_log_without_a_beginning_is_refused(tmp_path, content, words):
    folder = write_log(tmp_path, [content])
    with pytest.raises(RunFolderError) as caught:
        load_run(folder)
    assert str(caught.value) == words.format(run=folder, log=folder / "events.jsonl")


def test_a_log_that_is_a_link_or_a_pipe_is_refused(tmp_path):
    real = write_log(tmp_path / "real", lines(whole_run()))
    (linked := tmp_path / "linked").mkdir()
    (linked / "events.jsonl").symlink_to(real / "events.jsonl")
    (pipe := tmp_path / "pipe").mkdir()
    os.mkfifo(pipe / "events.jsonl")
    for folder, words in (
        (linked, "The log of {} is reached through a symbolic link, so it is not read."),
        (pipe, "The log of {} is not a regular file, so it is not read."),
    ):
        with pytest.raises(RunFolderError) as caught:
            load_run(folder)
        assert str(caught.value) == words.format(folder)


# Files


def stored(data):
    return StoredFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data), format="text")


def with_event_in(tmp_path, file):
    """Return the folder of a log with an event that is in a file."""
    first, block = lines([started(), text("a")])
    line = {name: each for name, each in json.loads(block).items() if name != "message"}
    return write_log(tmp_path / "run", [first, json.dumps({**line, "stored": file}).encode() + b"\n"])


@pytest.mark.parametrize("how", ["missing", "changed", "longer", "link", "linked folder", "folder"])
def test_a_file_that_is_not_the_one_of_the_log_is_a_gap(tmp_path, how):
    file = stored(b"the output")
    folder = with_event_in(tmp_path, file.model_dump())
    files = folder / "files"
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / file.sha256).write_bytes(b"the output")
    if how == "linked folder":
        files.symlink_to(elsewhere)
    else:
        files.mkdir()
    name = f"files/{file.sha256}"
    if how == "link":
        (folder / name).symlink_to(elsewhere / file.sha256)
    elif how == "folder":
        (folder / name).mkdir()
    elif how in ("changed", "longer"):
        (folder / name).write_bytes(b"something" if how == "changed" else b"the output and more")
    words = {
        "missing": f"The {name} of {folder} can't be read: No such file or directory.",
        "folder": f"The {name} of {folder} is not a regular file, so it is not read.",
        "changed": f"{name} of {folder} is not what the run has written: it was changed.",
        "longer": f"{name} of {folder} is not what the run has written: it was changed.",
    }
    reason = words.get(how, f"The {name} of {folder} is reached through a symbolic link, so it is not read.")
    reason = reason if len(reason) <= 200 else reason[:199] + "…"
    run = load_run(folder)
    assert list(run)[1:] == [Gap(2, reason)]
    with pytest.raises(RunFileError):
        run.read_file(file)


def test_a_path_that_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"the output")
    file = stored(b"the output").model_dump() | {"sha256": "../../secret"}
    _, gap = load_run(with_event_in(tmp_path, file))
    assert isinstance(gap, Gap)
    assert "String should match pattern" in gap.reason


def test_an_event_that_was_too_large_for_a_run_is_a_gap(tmp_path):
    file = StoredFile(sha256=None, size=10**9, format="json", note="a run's folder keeps files of up to 5 bytes")
    _, gap = load_run(with_event_in(tmp_path, file.model_dump()))
    assert gap.reason.endswith("was left out: a run's folder keeps files of up to 5 bytes.")


def test_files_of_a_result_are_the_copies_in_the_folder(tmp_path):
    (tmp_path / "plot.png").write_bytes(b"pixels")
    (tmp_path / "secret.png").write_bytes(b"secret")
    copied, missing = StoredFile(sha256=hashlib.sha256(b"pixels").hexdigest(), size=6), stored(b"gone")
    artifacts = [
        ArtifactRecord(name=name, size=6, media_type="image/png", path=str(tmp_path / "secret.png"), file=file)
        for name, file in (("a.png", copied), ("b.png", missing), ("c.png", None))
    ]
    displays = [DisplayRecord(name="a.png", data={"text/plain": "a"}, path=str(tmp_path / "secret.png"))]
    record = ResultRecord(kind="sandbox", exit_code=0, output="", artifacts=artifacts, displays=displays)
    event = BlockFinished(agent="a", number=1, result=record)
    folder = write_log(tmp_path / "run", lines([started(), event]))
    (folder / "files").mkdir()
    (folder / "files" / copied.sha256).write_bytes(b"pixels")
    run = load_run(folder)
    _, block = run
    result = run.result(block.result)
    assert [each.path for each in result.artifacts] == [folder / "files" / copied.sha256, None, None]
    assert [each.path for each in result.displays] == [None]
    (folder / "files").rename(tmp_path / "elsewhere")
    (folder / "files").symlink_to(tmp_path / "elsewhere")
    assert [each.path for each in run.result(block.result).artifacts] == [None, None, None]


def kept_in(tmp_path, *names):
    """Return a run whose code has made files with these names, with the content "pixels"."""
    file = StoredFile(sha256=hashlib.sha256(b"pixels").hexdigest(), size=6)
    artifacts = [ArtifactRecord(name=name, size=6, media_type="image/png", file=file) for name in names]
    record = ResultRecord(kind="sandbox", exit_code=0, output="", artifacts=artifacts)
    folder = write_log(tmp_path / "run", lines([started(), BlockFinished(agent="a", number=1, result=record)]))
    (folder / "files").mkdir()
    (folder / "files" / file.sha256).write_bytes(b"pixels")
    return load_run(folder)


def test_files_are_written_under_their_names(tmp_path):
    assert export_files(kept_in(tmp_path, "a.png", "sub/b.png"), tmp_path / "out") == ["a.png", "sub/b.png"]
    assert (tmp_path / "out" / "sub" / "b.png").read_bytes() == b"pixels"


@pytest.mark.parametrize(
    ("names", "written"),
    [(["a", "a/b", "c"], ["a/b", "c"]), (["a/b", "a/c/d", "a", "e"], ["a", "e"])],
    ids=["a file becomes a folder", "a folder becomes a file"],
)
def test_the_last_of_files_that_replace_each_other_is_written(tmp_path, names, written):
    assert export_files(kept_in(tmp_path, *names), tmp_path / "out") == written


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "sub/../../a.png", "a\x1b[2J.png"])
def test_a_name_that_leads_out_of_the_folder_is_not_written(tmp_path, name):
    with pytest.raises(RunFileError, match=r"^The log names a file that is not written: The file name `"):
        export_files(kept_in(tmp_path, "good.png", name), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Size


def peak_of(folder):
    tracemalloc.start()
    try:
        count = sum(1 for _ in load_run(folder))
        return count, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path):
    folder = write_log(tmp_path / "run", lines([started()]))
    os.truncate(folder / "events.jsonl", 80_000_000)
    count, peak = peak_of(folder)
    assert count == 2
    assert peak < 4 * MAX_LINE
