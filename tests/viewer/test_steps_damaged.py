"""Steps of logs that are damaged, incomplete or larger than is shown."""

import json

from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    CodeText,
    HostCallFinished,
    HostCallStarted,
    LogStopped,
)
from autogen_codeact.runs.results import CallRecord, ResultRecord
from autogen_codeact.runs.writer import MAX_LINE
from autogen_codeact.viewer import indexing
from tests.cases import case
from tests.runs.logs import lines, started, text, whole_run, write_log

from .test_steps import kinds, read, steps


def test_damaged_lines_are_one_gap_and_the_rest_is_there(tmp_path):
    content = lines(whole_run())
    content[3:5] = [b"{broken\n", b"\x00\xff\n", b'{"type": 1}\n']
    run = read(write_log(tmp_path / "run", content))
    gaps = [each for each in steps(run) if each["kind"] == "gap"]
    assert [(each["text"], each["notes"]) for each in gaps] == [("the line is damaged: it is not JSON", ["3 lines"])]
    assert run.header()["gaps"] == 3
    assert kinds(run)[-1] == ("end", None, "completed")


def test_overlong_line_is_a_gap_and_costs_no_memory(tmp_path):
    content = lines(whole_run())
    folder = write_log(tmp_path / "run", [*content[:3], b"x" * (3 * MAX_LINE) + b"\n", *content[3:]])
    run = read(folder)
    gap = next(each for each in steps(run) if each["kind"] == "gap")
    assert gap["text"] == f"the line has {3 * MAX_LINE:,} bytes; at most {MAX_LINE:,} are read"
    assert run.header()["outcome"] == "completed"


def test_log_that_is_cut_off_ends_with_a_gap_once(tmp_path):
    content = lines(whole_run())
    run = read(write_log(tmp_path / "run", [*content[:4], content[4][:30]]))
    run.read()
    assert kinds(run)[-1] == ("gap", None, None)
    assert [each["text"] for each in steps(run) if each["kind"] == "gap"] == ["the last line is incomplete"]
    assert (run.header()["outcome"], run.header()["gaps"]) == ("interrupted", 0)


def test_event_with_wrong_fields_is_a_gap(tmp_path):
    content = lines(whole_run())
    wrong = json.loads(content[4]) | {"blocks": 7}
    unknown = json.loads(content[5]) | {"type": "dance", "step": "\u202e\x1b[31m"}
    content[4:6] = [json.dumps(wrong).encode() + b"\n", json.dumps(unknown).encode() + b"\n"]
    run = read(write_log(tmp_path / "run", content))
    gap, event = [each for each in steps(run) if each["kind"] in ("gap", "event")]
    assert gap["text"] == "this is not an event of type block_started"
    assert "dance" in event["text"]
    assert "\u202e" not in event["text"]


def test_malformed_event_costs_at_most_its_own_step(tmp_path_factory):
    for place, change in [
        (4, {"number": float("inf")}),
        (4, {"agent": "\ud800\u202e" + "x" * 100_000}),
        (5, {"number": float("nan")}),
        (6, {"message": {"type": "CodeExecutionEvent", "source": "\ud800", "metadata": {"outcome": "\ud800" * 900}}}),
        (3, {"message": {"type": "CodeGenerationEvent", "source": "coder", "content": "x", "code_blocks": 5}}),
        (3, {"message": {"type": "CodeGenerationEvent", "source": "coder", "content": [[[]]], "code_blocks": [5]}}),
        (2, {"result": {"usage": {"prompt_tokens": 1e999}, "content": {"\ud800": []}, "thought": 7}}),
        (9, {"outcome": "\ud800", "duration_s": 1e999}),
        (7, {"monotonic": 10**400, "time": "\u202e"}),
        (7, {"message": {"type": ["x"], "source": {}}}),
    ]:
        with case(place, change):
            tmp_path = tmp_path_factory.mktemp("case")
            content = lines(whole_run())
            content[place] = json.dumps(json.loads(content[place]) | change).encode() + b"\n"
            run = read(write_log(tmp_path / "run", content))
            shown = json.dumps([run.header(), run.summaries(1, len(run)), steps(run)], allow_nan=False)
            assert "\\ud800" not in shown.replace("\\\\ud800", "")
            assert "\\u202e" not in shown.replace("\\\\u202e", "")
            assert len(shown) < 50_000
            assert [kinds(run)[0][0], kinds(run)[-1][0]] == ["task", "end"]
            assert run.search("nothing", range(1, len(run) + 1)) == []


def test_block_with_very_many_calls_is_shown_without_reading_them_all(tmp_path, monkeypatch):
    call = CallRecord(name="f", arguments={"x": 1}, outcome="ok", result=2)
    result = ResultRecord(kind="sandbox", exit_code=0, output="done\n", tool_calls=[call] * 300)
    calls = [
        event
        for number in range(1, 3_001)
        for event in (
            HostCallStarted(agent="coder", block=1, call=number, name="f", arguments={"x": 1}, idempotent=False),
            HostCallFinished(agent="coder", block=1, call=number, record=call),
        )
    ]
    block = BlockStarted(agent="coder", number=1, blocks=[CodeText(code="f(1)", language="python")])
    content = lines([started(), block, *calls, BlockFinished(agent="coder", number=1, result=result)])
    run = read(write_log(tmp_path / "run", content))
    parsed = []
    monkeypatch.setattr(run.run, "parse", lambda event, parse=run.run.parse: parsed.append(event) or parse(event))
    (step,) = run.steps(2, 2)
    assert (step["code"], step["output"], step["outcome"], len(step["calls"])) == ("f(1)", "done\n", "ok", 100)
    assert step["notes"] == ["200 more calls are not shown."]
    assert len(parsed) <= 1_000


def test_log_stopped_is_a_gap(tmp_path):
    run = read(write_log(tmp_path / "run", lines([started(), LogStopped(reason="disk full")])))
    assert steps(run)[1]["text"] == "The run went on without a log: disk full"


def test_replaced_log_is_not_read_on(tmp_path):
    content = lines(whole_run())
    folder = write_log(tmp_path / "run", content)
    run = read(folder)
    write_log(folder, content[:2])
    run.read()
    assert run.error == f"The log of {folder} was replaced while it was read."


def test_steps_of_a_run_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "MAX_STEPS", 5)
    run = read(write_log(tmp_path / "run", lines([started(), *(text(str(n)) for n in range(20))])))
    assert len(run) == 6
    assert steps(run)[-1]["text"] == "the run has more than 5 steps; the others are not shown"
