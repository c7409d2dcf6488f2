"""Logs of runs that tests write line by line."""

import json
from pathlib import Path

from autogen_codeact.runs.events import (
    BlockFinished,
    BlockStarted,
    Boundary,
    CodeText,
    Event,
    MessageLogged,
    ModelCallFinished,
    ProcessInfo,
    RunFinished,
    RunStarted,
)
from autogen_codeact.runs.results import ResultRecord


def text(content: str, source: str = "coder") -> MessageLogged:
    """Return the event of a text message."""
    return MessageLogged(message={"type": "TextMessage", "content": content, "source": source, "metadata": {}})


def started(task: str = "What is 6*7?") -> RunStarted:
    """Return the first event of a log."""
    message = {"type": "TextMessage", "content": task, "source": "user"}
    process = ProcessInfo(pid=1, host="here")
    return RunStarted(run="r1", kind="agent", name="coder", task=[message], process=process)


def whole_run(task: str = "What is 6*7?", output: str = "42\n") -> list[Event]:
    """Return the events of a short run."""
    block = [CodeText(code="print(6 * 7)\n", language="python")]
    result = ResultRecord(kind="sandbox", exit_code=0, output=output, duration_s=0.25)
    generated = {
        "type": "CodeGenerationEvent",
        "source": "coder",
        "retry_attempt": 0,
        "content": "I compute it.\n```python\nprint(6 * 7)\n```\nThen I answer.",
        "code_blocks": [{"code": "print(6 * 7)\n", "language": "python"}],
        "metadata": {},
    }
    ran = {
        "type": "CodeExecutionEvent",
        "source": "coder",
        "retry_attempt": 0,
        "result": {"exit_code": 0, "output": output},
        "metadata": {"exit_code": "0"},
    }
    answer = {"finish_reason": "stop", "usage": {"prompt_tokens": 30, "completion_tokens": 12}, "content": "…"}
    return [
        started(task),
        text(task, "user"),
        ModelCallFinished(agent="coder", number=1, result=answer),
        MessageLogged(message=generated),
        BlockStarted(agent="coder", number=1, blocks=block),
        BlockFinished(agent="coder", number=1, result=result),
        MessageLogged(message=ran),
        text("It is 42."),
        Boundary(at="turn"),
        RunFinished(outcome="completed", stop_reason="done"),
    ]


def lines(events: list[Event]) -> list[bytes]:
    """Return events as the lines of a log, numbered, one second apart."""
    numbered = [
        each.model_copy(update={"seq": number, "monotonic": 100.0 + number}) for number, each in enumerate(events, 1)
    ]
    return [each.model_dump_json().encode() + b"\n" for each in numbered]


def write_log(folder: Path, content: list[bytes]) -> Path:
    """Write a log and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_bytes(b"".join(content))
    return folder


def changed(line: bytes, **fields) -> bytes:
    """Return a line with other values."""
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"
