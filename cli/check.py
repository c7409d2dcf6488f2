"""The result of one check of `codeact doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "lack", "note"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Args:
        name: What was checked.
        status: `lack` if something necessary is missing or wrong, `note` if it is only good to know.
        detail: What was found.
        advice: What to do; may be empty.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
