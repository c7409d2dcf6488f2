"""What `codeact doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "lack", "note"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Args:
        name: What.
        status: `lack` where something is missing that is needed, `note` where it is only good to know.
        detail: What was found.
        advice: What to do; empty where nothing is.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""
