"""What lists of runs say of a run."""

import pytest

from autogen_codeact.runs import list_runs, load_run, summarize
from autogen_codeact.runs.errors import RunFolderError
from autogen_codeact.runs.events import LogStopped, ProcessInfo, RunFinished, RunResumed
from autogen_codeact.runs.summary import RunSummary, task_text
from codeact_sandbox.types.result import ErrorInfo
from tests.runs.logs import changed, lines, whole_run, write_log

PROCESS = ProcessInfo(pid=2, host="here")


def summary_of(tmp_path, content) -> RunSummary:
    return summarize(load_run(write_log(tmp_path / "run", content)))


def test_the_time_between_two_processes_of_a_run_does_not_count(tmp_path):
    whole = whole_run()
    content = lines([*whole[:6], RunResumed(boundary=1, process=PROCESS), *whole[6:]])
    # The other process is on a machine that was started later: its clock begins at 5.
    content[6:] = [changed(line, monotonic=5.0 + number) for number, line in enumerate(content[6:])]
    summary = summary_of(tmp_path, content)
    assert (summary.seconds, summary.outcome) == (5.0 + 4.0, "completed")


def test_a_run_that_is_resumed_after_its_end_and_not_ended_again_is_interrupted(tmp_path):
    error = ErrorInfo(type="ValueError", message="no answer")
    content = [*whole_run()[:-1], RunFinished(outcome="failed", error=error)]
    failed = summary_of(tmp_path, lines(content))
    assert (failed.outcome, failed.error) == ("failed", "ValueError: no answer")
    content.append(RunResumed(boundary=1, process=PROCESS))
    going_on = summary_of(tmp_path, lines(content))
    assert (going_on.outcome, going_on.error) == ("interrupted", None)


def test_a_log_that_was_stopped_is_interrupted(tmp_path):
    summary = summary_of(tmp_path, lines([*whole_run()[:4], LogStopped(reason="OSError: no space")]))
    assert (summary.outcome, summary.steps, summary.tokens) == ("interrupted", 0, 42)


def test_events_with_fields_of_wrong_types_do_not_count(tmp_path):
    content = lines(whole_run())
    content[2] = changed(content[2], result={"usage": {"prompt_tokens": "many", "completion_tokens": 4}})
    content[3] = changed(content[3], monotonic="now")
    content[5] = changed(content[5], monotonic=float("inf"))
    content[8] = changed(content[8], monotonic=float("nan"))
    summary = summary_of(tmp_path, content)
    assert (summary.tokens, summary.outcome) == (4, "completed")
    assert 0 < summary.seconds < 10


def test_a_list_needs_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for name, words in (
        ("file", f"{tmp_path}/file is not a folder."),
        ("none", f"{tmp_path}/none does not exist. `codeact run --save {tmp_path}/none/NAME` keeps a run in it."),
    ):
        with pytest.raises(RunFolderError) as caught:
            list_runs(tmp_path / name)
        assert str(caught.value) == words


def test_text_of_a_task():
    image = {"type": "MultiModalMessage", "content": ["What is this?", {"data": "…"}]}
    other = {"type": "StructuredMessage[Order]", "content": {"item": "tea"}}
    assert task_text([{"type": "TextMessage", "content": "Look."}, image, other]) == (
        "Look.\nWhat is this?\n[image]\nStructuredMessage[Order]"
    )
