"""JSON files that the user has written."""

from __future__ import annotations

import json
from typing import Any

from autogen_codeact.cli.exit import CommandError


def parse_json(text: str, name: str, form: str = "") -> Any:
    """Return what a JSON text contains."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{name}:{error.lineno} is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    except (ValueError, RecursionError):
        problem = f"{name} is nested too deep, or has a number that is too long"
    raise CommandError(f"{problem}: {form}" if form else problem)
