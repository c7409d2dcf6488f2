"""Runs in other forms: what only a log can have that no live run gives."""

import io
import json

import pytest

from autogen_codeact.runs import export_json, export_notebook, load_run
from autogen_codeact.runs.events import BlockFinished, BlockStarted, CodeText, MessageLogged
from autogen_codeact.runs.results import DisplayRecord, ResultRecord, StoredFile
from autogen_codeact.runs.text import words_beside_code
from codeact_sandbox.types.result import ErrorInfo
from tests.runs.logs import lines, started, write_log

CODE = [CodeText(code="1", language="python"), CodeText(code="puts 1", language="ruby")]


def cells_of(tmp_path, *events):
    """Return the cells of the notebook for a run, after those with the title and the task."""
    run = load_run(write_log(tmp_path / "run", lines([started(), *events])))
    export_notebook(run, file := io.StringIO())
    return json.loads(file.getvalue())["cells"][2:]


def block(number=1, **result):
    fields = {"kind": "sandbox", "exit_code": 0, "output": "", **result}
    return [
        BlockStarted(agent="a", number=number, blocks=CODE[:1]),
        BlockFinished(agent="a", number=number, result=ResultRecord(**fields)),
    ]


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    display = DisplayRecord(name="d", data={"application/json": {"a": [float("nan"), 1.5]}, "text/plain": "d"})
    (cell,) = cells_of(tmp_path, *block(displays=[display]))
    assert cell["outputs"][0]["data"] == {"application/json": {"a": [None, 1.5]}, "text/plain": "d"}
    export_json(load_run(tmp_path / "run"), file := io.StringIO())
    assert "NaN" not in file.getvalue()
    (shown,) = json.loads(file.getvalue())["events"][2]["result"]["displays"]
    assert shown["data"] == {"application/json": {"a": [None, 1.5]}, "text/plain": "d"}


def test_forms_that_run_in_a_browser_are_left_out(tmp_path):
    data = {"application/javascript": "alert(1)", "application/x-own": "x"}
    (cell,) = cells_of(tmp_path, *block(displays=[DisplayRecord(name="display-1", data=data)]))
    assert cell["outputs"][0]["data"] == {"text/plain": "display-1"}


def test_a_display_whose_file_is_missing_is_named_in_the_output(tmp_path):
    file = StoredFile(sha256="0" * 64, size=3)
    (cell,) = cells_of(tmp_path, *block(output="x", displays=[DisplayRecord(name="f", files={"image/png": file})]))
    (output,) = cell["outputs"]
    assert output["text"].startswith("x\n[The files/000")
    assert output["text"].endswith("can't be read: No such file or directory.]")


@pytest.mark.parametrize(
    ("finished", "name", "message"),
    [
        ([], "Interrupted", "the run ended while this code ran"),
        (
            [BlockFinished(agent="a", number=1, error=ErrorInfo(type="SandboxDied", message="it is gone"))],
            "SandboxDied",
            "it is gone",
        ),
        (
            [
                BlockFinished(
                    agent="a", number=1, result=ResultRecord(kind="plain", exit_code=3, output="no", outcome="error")
                )
            ],
            "error",
            "exit code 3",
        ),
        (
            [
                BlockFinished(
                    agent="a",
                    number=1,
                    result=ResultRecord(kind="sandbox", exit_code=124, output="", outcome="timeout"),
                )
            ],
            "timeout",
            "exit code 124",
        ),
    ],
)
def test_code_that_failed_has_an_error_in_its_last_cell(tmp_path, finished, name, message):
    first, last = cells_of(tmp_path, BlockStarted(agent="a", number=1, blocks=CODE), *finished)
    assert (first["source"], first["outputs"], last["source"]) == ("1", [], "%%script ruby\nputs 1")
    error = last["outputs"][-1]
    assert (error["ename"], error["evalue"], error["traceback"]) == (name, message, [f"{name}: {message}"])


@pytest.mark.parametrize("blocks", [3, [3], [{"code": 3}], None])
def test_wrong_fields_of_a_message_do_not_matter(tmp_path, blocks):
    message = {"type": "CodeGenerationEvent", "source": "a", "content": "Hm.", "code_blocks": blocks, "metadata": 3}
    (cell,) = cells_of(tmp_path, MessageLogged(message=message))
    assert cell["source"] == "**a**\n\nHm."


def test_messages_that_are_no_text_are_shown_as_json(tmp_path):
    message = {"type": "StructuredMessage[Order]", "source": "a", "content": {"item": "tea"}}
    (cell,) = cells_of(tmp_path, MessageLogged(message=message))
    assert cell["source"] == '**a**\n\n{\n "item": "tea"\n}'


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("a\n```python\nx\n```\nb", "a\nb"),
        ("a\r\n\r\n~~~py\r\nx\r\n~~~", "a"),
        ("1. a\n   ```python\n   x\n   ```\n2. b", "1. a\n2. b"),
        ("a\n```text\ny\n```\n```python\nx\n```", "a\n```text\ny\n```"),
        ("<execute>x</execute> b", "<execute>x</execute> b"),
        ("no code", "no code"),
    ],
)
def test_words_beside_code(written, left):
    assert words_beside_code(written, ["x\n"]) == left
