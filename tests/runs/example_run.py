"""A run of some steps with a host tool that counts its calls, and a model that answers by the conversation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER = "The values are {values}"
UNKNOWN = "It is not known how far this code came"


def counting_tool(file: Path) -> Callable[[int], int]:
    """A host tool that writes each of its calls into a file outside the run, so that it is there after a kill."""

    def triple(number: int) -> int:
        """Return three times a number."""
        with file.open("a") as calls:
            calls.write(f"{number}\n")
            calls.flush()
            os.fsync(calls.fileno())
        return 3 * number

    return triple


def counted(file: Path) -> list[int]:
    """The numbers that the tool was called with, in order."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def model(steps: int, per_turn: int = 99) -> Callable[[list[dict[str, Any]]], str]:
    """A model that has its code call the tool once in each step, and at last says what the session contains.

    After code whose end is not known it calls the tool again only if it was not told of a call.
    """

    def answer(messages: list[dict[str, Any]]) -> str:
        texts = [_text(message) for message in messages]
        found = [(at, int(n)) for at, text in enumerate(texts) for n in re.findall(r"(?:# |up to )step (\d+)", text)]
        turn = max((at for at, text in enumerate(texts) if "up to step" in text), default=-1)
        step = max((number for _, number in found), default=0)
        if UNKNOWN in texts[-1]:
            call = f"triple(number={step})"
            return _code(step, str(3 * step) if call in texts[-1] else call)
        if step < steps and sum(at > turn for at, _ in found) >= per_turn:
            return f"Done up to step {step}."
        if step < steps:
            return _code(step + 1, f"triple(number={step + 1})")
        return ANSWER.format(values=texts[-1].strip())

    return answer


def expected(steps: int) -> str:
    """The answer of a run that was never interrupted."""
    return ANSWER.format(values={number: 3 * number for number in range(1, steps + 1)})


def _code(step: int, value: str) -> str:
    begin = "values = {}\n" if step == 1 else ""
    return f"```python\n# step {step}\n{begin}values[{step}] = {value}\nprint(values)\n```"


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
