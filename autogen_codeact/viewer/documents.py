"""Makes the JSON documents of a run and its steps, which the page and the HTML export show: see `steps`."""

from __future__ import annotations

import difflib
import json
import math
from contextlib import suppress
from typing import Any

from autogen_codeact.agents.budget import prices_of
from autogen_codeact.runs.errors import RunError, RunFileError
from autogen_codeact.runs.reader import Run
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.runs.step_list import Step
from autogen_codeact.runs.step_parts import Content
from autogen_codeact.runs.summary import task_text
from autogen_codeact.runs.text import bounded, download_name, model_name, shortened, terminal_text, visible
from autogen_codeact.runs.view import RunView
from codeact_sandbox.highlight import pieces
from codeact_sandbox.types.displays import is_json

Document = dict[str, Any]
TEXT_CHARS = 200_000
_LIMITS = {"text": TEXT_CHARS, "thought": TEXT_CHARS, "output": 40_000}
DISPLAY_CHARS = 1_000_000
_TASK_CHARS = 20_000
_MAX_BYTES = 256 * 1024
_MAX_LINES = 400  # the time of a comparison grows with their square
_MAX_DIFF = 32 * 1024
_AS_THEY_ARE = (
    *("notes", "error", "target", "retry", "stop_reason", "exit_code", "truncated", "value", "usage"),
    *("calls", "connections"),
)


def header(view: RunView, name: str) -> Document:
    """Return what is known of a run by now."""
    started, totals = view.run.started, view.totals
    finished = totals.finished
    error = finished.error if finished is not None else None
    prices = prices_of(each.model for each in started.agents)
    return {
        "id": name,
        "name": bounded(started.name, 200),
        "kind": started.kind,
        "task": shortened(task_text(started.task or ()), _TASK_CHARS)[0],
        "agents": [
            {
                "name": bounded(each.name, 200),
                "kind": bounded(each.kind.lstrip("_"), 200),
                "model": model_name(each.model) if each.model is not None else None,
            }
            for each in started.agents[:100]
        ],
        "started": started.time.isoformat(),
        "outcome": totals.outcome(live=view.live),
        "stop_reason": _shown(finished.stop_reason) if finished is not None else None,
        "error": bounded(f"{error.type}: {error.message}") if error is not None else view.error,
        "steps": len(view.steps),
        "blocks": totals.blocks,
        "model_calls": totals.model_calls,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "cost": prices.cost(totals.prompt_tokens, totals.completion_tokens) if prices is not None else None,
        "duration_s": round(totals.seconds, 6),
        "timing": view.timing,
        "resumed": totals.resumed,
        "gaps": totals.gaps,
        "live": view.live,
        "indexed": view.indexed,
        "revision": view.revision,
        "controls": False,
    }


def summary(view: RunView, step: Step) -> Document:
    return {
        "number": step.number,
        "kind": step.kind,
        "agent": visible(step.agent) if step.agent is not None else None,
        "title": step.title,
        "outcome": _outcome(view, step),
        "state": step.state,
        "running": view.is_running(step),
    }


def document(view: RunView, step: Step, *, highlighted: bool = True, whole: bool = False) -> Document:
    """Return the document of a step.

    Args:
        highlighted: Whether code has its parts, to be coloured.
        whole: Whether text and output are not shortened.
    """
    content = view.content(step)
    found = {
        **summary(view, step),
        "time": step.time,
        "duration_s": round(step.took_s, 6),
        "usage": None,
        **{name: _shown(content[name]) for name in _AS_THEY_ARE if name in content},
    }
    del found["title"]
    texts = {name: content[name] for name in _LIMITS if name in content}
    if "output" in texts:
        texts["output"] = terminal_text(texts["output"])
    for name, text in texts.items():
        found[name], found[f"{name}_bytes"] = shortened(text, len(text) if whole else _LIMITS[name])
    if content.get("code"):
        found |= _code(content["code"], highlighted=highlighted)
    if "files" in content:
        found["displays"] = [_display(view, each) for each in content["displays"]]
        found["files"] = [_file(view, each) for each in content["files"]]
    return found


def _outcome(view: RunView, step: Step) -> str | None:
    if step.kind == "block" and step.is_open:
        return "running" if view.is_running(step) else "interrupted"
    return visible(step.outcome) if step.outcome is not None else None


def _shown(value: Any, limit: int | None = None) -> Any:
    """Return a JSON value with its text shortened, and without what hides or reorders it."""
    match value:
        case str():
            return bounded(value) if limit is None else bounded(value, limit)
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {bounded(name, 200): _shown(each) for name, each in value.items()}
        case list():
            return [_shown(each) for each in value]
    return value


def _code(blocks: list[Content], *, highlighted: bool) -> Document:
    text, size = shortened("\n\n".join(each["code"] for each in blocks).rstrip("\n"), TEXT_CHARS)
    language = bounded(blocks[0]["language"], 40)
    spans = pieces(text, language) if highlighted else []
    coloured = [[kind, part] for kind, part in spans] if any(kind for kind, _ in spans) else None
    return {"code": text, "code_bytes": size, "language": language, "spans": coloured}


def _display(view: RunView, display: Content) -> Document:
    data: dict[str, Any] = {}
    for kind, form in display["data"].items():
        text = form if isinstance(form, str) else json.dumps(form, default=str)
        if len(text) <= DISPLAY_CHARS:
            data[bounded(kind, 100)] = text
        else:
            data.setdefault("text/plain", f"[{visible(kind[:100])} with {len(text):,} characters is not shown]")
    for kind, file in display["files"].items():
        data[bounded(kind, 100)] = {"file": _shown({**file, "media_type": kind})}
        if is_json(kind) and file["size"] <= DISPLAY_CHARS:
            with suppress(RunFileError):
                data[bounded(kind, 100)] = view.run.read_file(StoredFile(**file)).decode("utf-8", "replace")
    return {"name": bounded(display["name"], 300), "data": data}


def _file(view: RunView, file: Content) -> Document:
    stored = file["file"]
    return {
        "name": bounded(file["name"], 1_000),
        "download": download_name(file["name"]),
        "change": "added" if file["is_new"] else "changed",
        "size": file["size"],
        "diff": _difference(view.run, file),
        "file": _shown({**stored, "media_type": file["media_type"]}) if stored is not None else None,
        "note": _shown(file["note"]),
    }


def _difference(run: Run, file: dict[str, Any]) -> str | None:
    """Return the unified difference of a file's copies; None if they are no short text files of the run's folder."""
    after = _lines(run, file["file"])
    before = [] if file["is_new"] else _lines(run, file["before"])
    if before is None or after is None:
        return None
    shown = visible(file["name"][:200]).replace("\n", " ")
    return bounded("\n".join(difflib.unified_diff(before, after, shown, shown, lineterm="")), _MAX_DIFF)


def _lines(run: Run, file: dict[str, Any] | None) -> list[str] | None:
    """Return the lines of a text file, or None if it has none, is too long, or is not in the folder."""
    if file is None or file["sha256"] is None or file["size"] > _MAX_BYTES:
        return None
    try:
        text = run.read_file(StoredFile(**file)).decode("utf-8")
    except (RunError, UnicodeDecodeError):
        return None
    lines = text.removesuffix("\n").split("\n") if text else []
    return None if "\0" in text or len(lines) > _MAX_LINES else lines
