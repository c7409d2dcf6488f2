"""What tests of `codeact batch` share: a scripted server, and files of tasks for it."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.support import Finished, codeact
from tests.openai_server import OpenAIServer, Reply

ENV = {"OPENAI_API_KEY": "sk-of-the-tests"}
_ASKED = re.compile(r"Task (\S+): double (\d+)")


class Model:
    """A server that doubles the number in a task."""

    def __init__(self, **replies: list[Reply | str]) -> None:
        self._replies = {name: list(each) for name, each in replies.items()}
        self.held = threading.Event()
        self.held.set()
        """Answers wait until it is set."""
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.server = OpenAIServer(self._answer)

    def __enter__(self) -> Model:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self.server.stop()

    def _answer(self, messages: list[dict[str, Any]]) -> str | Reply:
        found = _ASKED.search(json.dumps(messages))
        assert found is not None
        name, number = found[1], int(found[2])
        with self._lock:
            self.asked[name] += 1
            replies = self._replies.get(name) or self._replies.get("every")
            reply = (replies.pop(0) if len(replies) > 1 else replies[0]) if replies else None
        self.held.wait(60)
        return reply if reply is not None else f"It is {2 * number}."

    def arguments(self, tasks: Path, out: Path, *more: object) -> list[object]:
        """Return the arguments of a batch that uses this model, in few of the cheapest sandboxes."""
        cheap = ("--sandbox", "bubblewrap", "--concurrency", 2)
        options = ("--model", "scripted", "--base-url", self.server.base_url, *cheap)
        return ["batch", tasks, "--out", out, *options, *more]

    def run(self, tasks: Path, out: Path, *more: object, **options: Any) -> Finished:
        """Run a batch to its end."""
        return codeact(*self.arguments(tasks, out, *more), env=ENV, **options)


def write_tasks(folder: Path, count: int, **fields: Callable[[int], Any]) -> Path:
    """Write tasks, and return their file."""
    file = folder / "tasks.jsonl"
    with file.open("w") as lines:
        for number in range(count):
            more = {name: make(number) for name, make in fields.items()}
            lines.write(json.dumps({"id": f"t{number}", "task": f"Task t{number}: double {number}", **more}) + "\n")
    return file


def rows(out: Path) -> list[dict[str, Any]]:
    """Return the rows of a batch; one that is being written is left out."""
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def answers(out: Path) -> dict[str, str | None]:
    """Return the answers of a batch."""
    return {row["id"]: row["answer"] for row in rows(out)}


def doubled(count: int) -> dict[str, str | None]:
    """Return the right answers for so many tasks."""
    return {f"t{number}": f"It is {2 * number}." for number in range(count)}
