"""Steps of recorded runs as documents, also of damaged logs."""

import json
import shutil

import pytest

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded, view
from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    ChunkLogged,
    CodeText,
    ConversationReset,
    HostCallFinished,
    HostCallStarted,
    MessageLogged,
    ModelCallFinished,
    ModelCallStarted,
    ProcessInfo,
    RunFinished,
    RunResumed,
    TurnFinished,
    TurnStarted,
)
from autogen_codeact.runs.redaction import Redaction
from autogen_codeact.runs.results import CallRecord, ResultRecord
from autogen_codeact.runs.writer import LogWriter
from autogen_codeact.viewer.steps import RunSteps
from codeact_sandbox.types.result import ErrorInfo
from tests.runs.logs import lines, started, text, whole_run, write_log

from .runs import model, python

CHUNK = {"type": "ModelClientStreamingChunkEvent", "source": "coder"}


def read(folder):
    run = RunSteps(folder)
    run.view.read_all()
    return run


def kinds(run):
    return [(each["kind"], each["agent"], each["outcome"]) for each in run.summaries(1, len(run))]


def steps(run):
    return run.steps(1, len(run))


def test_rich_run_has_all_its_steps_in_order(rich_run):
    run = read(rich_run)
    assert kinds(run) == [
        ("task", "user", None),
        ("message", "actor", None),
        ("block", "actor", "ok"),
        ("message", "actor", None),
        ("block", "actor", "ok"),
        ("block", "actor", "ok"),
        ("block", "actor", "timeout"),
        ("block", "actor", "ok"),
        ("block", "actor", "ok"),
        ("handoff", "actor", None),
        ("block", "checker", "error"),
        ("decision", "checker", None),
        ("block", "checker", "ok"),
        ("message", "checker", None),
        ("end", None, "completed"),
    ]
    found = steps(run)
    assert [each["number"] for each in found] == list(range(1, 16))
    assert not any(each["running"] for each in found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_header_sums_up_the_run(rich_run):
    header = read(rich_run).header()
    assert header.pop("revision") > 15
    assert header["timing"]["sandbox_s"] >= 2
    assert header["duration_s"] >= 2
    for name in ("duration_s", "started", "timing", "completion_tokens"):
        header.pop(name)
    agent = {"model": "recorded answers"}
    assert header == {
        "id": "rich",
        "name": "Team",
        "kind": "team",
        "task": "Make a table of two cities, and check it.",
        "agents": [
            {"name": "actor", "kind": "CodeActAgent", **agent},
            {"name": "checker", "kind": "CodeExecutorAgent", **agent},
        ],
        "outcome": "completed",
        "stop_reason": "Text 'DONE' mentioned",
        "error": None,
        "steps": 15,
        "blocks": 8,
        "cost": None,
        "model_calls": 10,
        "prompt_tokens": 1000,
        "resumed": 0,
        "gaps": 0,
        "live": False,
        "indexed": True,
        "controls": False,
    }


@pytest.mark.parametrize("piece", [1, 1000, 100_000])
def test_a_log_that_grows_gives_the_same_steps_as_a_whole_one(rich_run, tmp_path_factory, piece):
    tmp_path = tmp_path_factory.mktemp("case")
    whole = (rich_run / "events.jsonl").read_bytes()
    folder = tmp_path / "rich"
    shutil.copytree(rich_run, folder)
    # By bytes only over its beginning: each reading opens the file.
    first = whole.index(b"\n") + 1
    places = range(first, first + 300) if piece == 1 else range(first, len(whole), piece)
    (folder / "events.jsonl").write_bytes(whole[:first])
    run = RunSteps(folder)
    run.view.live = True
    with open(folder / "events.jsonl", "ab", buffering=0) as log:
        done = first
        for place in [*places, len(whole)]:
            log.write(whole[done:place])
            done = place
            for line in run.view._tail.read(follow=True):
                run.view.add(line)
    run.view.live = False
    assert steps(run) == steps(read(rich_run))


async def test_code_that_was_not_approved_is_a_denied_block(bubblewrap, tmp_path):
    def refuse(request):
        from autogen_codeact.agents.approval import ApprovalResponse  # noqa: PLC0415 - with AutoGen, as in programs

        return ApprovalResponse(approved=False, reason="too risky")

    async with BubblewrapCommandLineCodeExecutor(mode="session") as session:
        client = model(python("open('x', 'w')", "I write."), "I may not.")
        agent = CodeActAgent("actor", session, model_client=client, approval_func=refuse)
        async for _ in recorded(agent, task="Write.", path=tmp_path / "run"):
            pass
    run = read(tmp_path / "run")
    assert kinds(run) == [
        ("task", "user", None),
        ("message", "actor", None),
        ("block", "actor", "denied"),
        ("message", "actor", None),
        ("end", None, "completed"),
    ]
    block = steps(run)[2]
    assert (block["code"], "too risky" in block["output"]) == ("open('x', 'w')", True)


async def test_calls_of_an_assistant_agents_model_belong_to_its_message(tmp_path):
    from autogen_agentchat.agents import AssistantAgent  # noqa: PLC0415 - takes a second
    from autogen_core import FunctionCall  # noqa: PLC0415 - takes a second
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage  # noqa: PLC0415 - takes a second
    from autogen_ext.models.replay import ReplayChatCompletionClient  # noqa: PLC0415 - takes a second

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    usage = RequestUsage(prompt_tokens=5, completion_tokens=2)
    calls = [FunctionCall(id="1", name="add", arguments='{"a": 1, "b": 2}')]
    asked = CreateResult(finish_reason="function_calls", content=calls, usage=usage, cached=False)
    info = ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)
    client = ReplayChatCompletionClient([asked, "It is 3."], info)
    agent = AssistantAgent("helper", client, tools=[add], reflect_on_tool_use=True)
    async for _ in recorded(agent, task="Add.", path=tmp_path / "run"):
        pass
    run = read(tmp_path / "run")
    assert kinds(run) == [
        ("task", "user", None),
        ("message", "helper", None),
        ("message", "helper", None),
        ("end", None, "completed"),
    ]
    _, request, answer, _ = steps(run)
    assert [(call["name"], call["outcome"], call["result"]) for call in request["calls"]] == [("add", "ok", '"3"')]
    assert (request["usage"], answer["text"]) == ({"prompt_tokens": 5, "completion_tokens": 2}, "It is 3.")


async def test_live_run_shows_its_open_call_and_the_output_of_a_running_block(tmp_path):
    log = await LogWriter.create(tmp_path / "run", Redaction())
    block = [CodeText(code="work()", language="python")]
    for event in (started(), ModelCallStarted(agent="coder", number=1, request="0" * 64)):
        await log.write(event, sync=True)
    run = read(tmp_path / "run")
    assert run.header()["outcome"] == "running"
    assert [(each["kind"], each["running"]) for each in steps(run)] == [("task", False), ("model_call", True)]
    revision = run.view.revision

    answer = {"content": "```python\nwork()\n```", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    codes = [{"code": "work()", "language": "python"}]
    generated = {
        "type": "CodeGenerationEvent",
        "source": "coder",
        "content": answer["content"],
        "code_blocks": codes,
    }
    output = {**CHUNK, "content": "half\n", "metadata": {"chunk_of": "execution"}}
    for event in (
        ModelCallFinished(agent="coder", number=1, result=answer, duration_s=0.5),
        MessageLogged(message=generated),
        BlockStarted(agent="coder", number=1, blocks=block),
        ChunkLogged(message=output),
    ):
        await log.write(event, sync=True)
    run.view.read_all()
    assert [number for _, number in run.changed_since(revision)] == [2]
    revision = run.view.revision
    (step,) = run.steps(2, 2)
    assert (step["kind"], step["outcome"], step["running"], step["output"]) == ("block", "running", True, "half\n")
    assert (step["usage"], step["duration_s"]) == ({"prompt_tokens": 3, "completion_tokens": 4}, 0.5)
    await log.close()

    # Its process has ended without an end of the run.
    assert run.view.read()
    assert run.header()["outcome"] == "interrupted"
    assert [number for _, number in run.changed_since(revision)] == [2]
    assert [(each["running"], each["outcome"]) for each in run.summaries(2, 2)] == [(False, "interrupted")]
    assert (steps(run)[1]["output"], run.output(2)) == ("half\n", "half\n")


def test_resumed_run_shows_the_interruption_and_goes_on(tmp_path):
    block = [CodeText(code="work()", language="python")]
    result = ResultRecord(kind="sandbox", exit_code=0, output="done\n", state="lost")
    process = ProcessInfo(pid=2, host="there")
    events = [
        started(),
        BlockStarted(agent="coder", number=1, blocks=block),
        RunResumed(boundary=1, process=process),
        BlockStarted(agent="coder", number=2, blocks=block),
        BlockFinished(agent="coder", number=2, result=result, duration_s=0.5),
        RunFinished(outcome="completed"),
    ]
    run = read(write_log(tmp_path / "run", lines(events)))
    assert kinds(run) == [
        ("task", "user", None),
        ("block", "coder", "interrupted"),
        ("resumed", None, None),
        ("block", "coder", "ok"),
        ("end", None, "completed"),
    ]
    assert steps(run)[2]["notes"] == ["Process 2 on there"]
    assert [each["state"] for each in run.summaries(1, 5)] == [None, None, None, "lost", None]
    assert run.header()["resumed"] == 1


def test_turns_of_a_conversation_begin_with_what_the_person_said(tmp_path):
    said = {"type": "TextMessage", "id": "7", "source": "user", "content": "And 7*7?"}
    error = ErrorInfo(type="APIError", message="busy")
    first = started().model_copy(update={"task": [said]})
    events = [
        first,
        TurnStarted(task=[said]),
        MessageLogged(message=said),
        text("49."),
        TurnFinished(outcome="completed"),
        TurnStarted(task=[{**said, "id": "8"}]),
        TurnFinished(outcome="failed", error=error),
        ConversationReset(),
        RunFinished(outcome="completed"),
    ]
    run = read(write_log(tmp_path / "run", lines(events)))
    assert [(each["kind"], each.get("text"), each.get("error")) for each in steps(run)] == [
        ("task", "And 7*7?", None),
        ("message", "49.", None),
        ("task", "And 7*7?", None),
        ("event", "The turn failed.", "APIError: busy"),
        ("event", "The conversation was started again.", None),
        ("end", None, None),
    ]


def test_step_whose_file_is_missing_says_so(rich_run, tmp_path):
    events = whole_run(output="x" * 100_000)
    folder = write_log(tmp_path / "run", lines(events))
    content = [json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    del content[5]["result"]
    content[5]["stored"] = {"sha256": "0" * 64, "size": 100_000, "format": "json", "note": None}
    write_log(folder, [json.dumps(each).encode() + b"\n" for each in content])
    block = next(each for each in steps(read(folder)) if each["kind"] == "block")
    assert "can't be read: line 6" in block["notes"][0]


# Text


def test_escapes_bidi_characters_and_lone_surrogates_become_visible(tmp_path):
    events = whole_run(task="\u202eevil\x1b]0;x\x07 \ud800", output="\x1b[31m10%\x1b[0m\r100%\n")
    run = read(write_log(tmp_path / "run", list(_safe_lines(events))))
    task, *_ = found = steps(run)
    assert task["text"] == "\\u202eevil\\x1b]0;x\\x07 \\ud800"
    block = next(each for each in found if each["kind"] == "block")
    assert block["output"] == "100%\n"


def _safe_lines(events):
    """Lines in ASCII: pydantic refuses to write lone surrogates, but a hostile log can have them."""
    for number, event in enumerate(events, 1):
        data = event.model_copy(update={"seq": number, "monotonic": 100.0 + number}).model_dump()
        yield json.dumps(data, default=str).encode() + b"\n"


def test_damaged_lines_are_one_gap_and_the_rest_is_there(tmp_path):
    content = lines(whole_run())
    content[3:5] = [b"{broken\n", b"\x00\xff\n", b'{"type": 1}\n']
    run = read(write_log(tmp_path / "run", content))
    gaps = [each for each in steps(run) if each["kind"] == "gap"]
    assert [(each["text"], each["notes"]) for each in gaps] == [("the line is damaged: it is not JSON", ["3 lines"])]
    assert run.header()["gaps"] == 1
    assert kinds(run)[-1] == ("end", None, "completed")


@pytest.mark.parametrize(
    ("place", "change"),
    [
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
    ],
)
def test_malformed_event_costs_at_most_its_own_step(tmp_path_factory, place, change):
    tmp_path = tmp_path_factory.mktemp("case")
    content = lines(whole_run())
    content[place] = json.dumps(json.loads(content[place]) | change).encode() + b"\n"
    run = read(write_log(tmp_path / "run", content))
    shown = json.dumps([run.header(), run.summaries(1, len(run)), steps(run)], allow_nan=False)
    assert "\\ud800" not in shown.replace("\\\\ud800", "")
    assert "\\u202e" not in shown.replace("\\\\u202e", "")
    assert len(shown) < 50_000
    last = "gap" if "outcome" in change else "end"  # an end that is none is not believed
    assert [kinds(run)[0][0], kinds(run)[-1][0]] == ["task", last]
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
    monkeypatch.setattr(
        run.view.run, "parse", lambda event, parse=run.view.run.parse: parsed.append(event) or parse(event)
    )
    (step,) = run.steps(2, 2)
    assert (step["code"], step["output"], step["outcome"], len(step["calls"])) == ("f(1)", "done\n", "ok", 100)
    assert step["notes"] == ["200 more calls are not shown."]
    assert len(parsed) <= 1_000


def test_replaced_log_is_not_read_on(tmp_path):
    content = lines(whole_run())
    folder = write_log(tmp_path / "run", content)
    run = read(folder)
    write_log(folder, content[:2])
    run.view.read()
    assert run.view.error == f"The log of {folder} was replaced while it was read."


def test_steps_of_a_run_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "MAX_HELD", 12_000)
    run = read(write_log(tmp_path / "run", lines([started(), *(text(str(n)) for n in range(20))])))
    assert 3 < len(run) < 10
    assert steps(run)[-1]["text"] == f"the run has more than {len(run) - 1} steps; the others are not shown"
