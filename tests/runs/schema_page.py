"""The table of events in docs/runs.md, made of the models. `python -m tests.runs.schema_page` writes it into the page."""

import inspect
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from autogen_codeact.runs.events import RunEvent

PAGE = Path(__file__).parents[2] / "docs" / "runs.md"
BEGIN, END = "<!-- events: written by tests/runs/schema_page.py -->\n", "<!-- /events -->"


def schema_section() -> str:
    """Return the table as markdown."""
    events = get_args(get_args(RunEvent)[0])
    rows = [f"| `{event.model_fields['type'].default}` | {_when(event)} |" for event in events]
    return "\n".join(["| event | when |", "|---|---|", *rows])


def _when(event: type[BaseModel]) -> str:
    summary = (inspect.getdoc(event) or "").partition("\nArgs:\n")[0]
    return " ".join(summary.split()).removesuffix(".")


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{schema_section()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
