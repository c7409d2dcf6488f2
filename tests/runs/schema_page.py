"""The tables of events in docs/runs.md, made of the models. `python -m tests.runs.schema_page` writes them into the page."""

import inspect
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel

from autogen_codeact.runs.events import AgentInfo, CodeText, Event, ProcessInfo, RunEvent
from autogen_codeact.runs.results import (
    ArtifactRecord,
    CallRecord,
    ConnectionRecord,
    DisplayRecord,
    ErrorRecord,
    ImageRecord,
    ResultRecord,
    StoredFile,
)

PAGE = Path(__file__).parents[2] / "docs" / "runs.md"
BEGIN, END = "<!-- events: written by tests/runs/schema_page.py -->\n", "<!-- /events -->"
PARTS = (ProcessInfo, AgentInfo, CodeText, ResultRecord, CallRecord, ErrorRecord, StoredFile, ImageRecord)
PARTS += (DisplayRecord, ArtifactRecord, ConnectionRecord)


def schema_section() -> str:
    """Return the tables as markdown."""
    events = get_args(get_args(RunEvent)[0])
    parts = [_section("All events", Event, own=False)]
    parts += [_section(f"`{_type_of(event)}`", event) for event in events]
    parts += [_section(f"`{part.__name__}`", part) for part in PARTS]
    return "\n".join(parts)


def _type_of(event: type[BaseModel]) -> str:
    return str(event.model_fields["type"].default)


def _section(title: str, model: type[BaseModel], *, own: bool = True) -> str:
    summary, described = _docstring(model)
    common = Event.model_fields if own and issubclass(model, Event) else ()
    rows = [
        f"| `{name}` | {_name_of(field.annotation)} | {described.get(name, '')} |"
        for name, field in model.model_fields.items()
        if name not in common and name != "type"
    ]
    table = ["| field | JSON | what |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {title}", "", summary, "", *table])


def _docstring(model: type[BaseModel]) -> tuple[str, dict[str, str]]:
    text = inspect.getdoc(model) or ""
    summary, _, arguments = text.partition("\nArgs:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", arguments, re.MULTILINE)
    return " ".join(summary.split()), {name: " ".join(words.split()) for name, words in found}


def _name_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name_of(arguments[0])
    if origin in (UnionType, Union):
        return " or ".join("null" if each is NoneType else _name_of(each) for each in arguments)
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin is list:
        return f"list of {_name_of(arguments[0])}"
    if origin is tuple:
        return "list"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"`{annotation.__name__}`"
    names = {str: "text", int: "integer", float: "number", bool: "boolean", AwareDatetime: "text", Path: "text"}
    return names.get(annotation, "object" if origin is dict or annotation is dict else "any")


def main() -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{schema_section()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
