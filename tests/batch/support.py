"""What tests of batches share: agents with a real client for a scripted server, and what that server is asked."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent
from autogen_codeact.batch import BatchSettings, Task, run_batch
from autogen_codeact.batch.results import Results, Row
from autogen_codeact.batch.running import Batch

if TYPE_CHECKING:  # it imports pytest, which killed_batch.py does not need
    from tests.openai_server import OpenAIServer

CODE = "x = {number}\nprint('x is', x)"
ANSWER = "final_answer({number} * 2)"


def double(number: int) -> Task:
    """A task with a step and an answer."""
    return Task(id=f"double/{number}", task=f"Double {number}.", metadata={"number": number})


def answer(messages: list[dict[str, Any]]) -> str:
    """What the model says: the code of the next step."""
    number = number_of(messages)
    step = sum(message["role"] == "assistant" for message in messages)
    code = ANSWER if step else CODE
    return f"```python\n{code.format(number=number)}\n```"


def number_of(messages: list[dict[str, Any]]) -> int:
    """The number in the task of a request."""
    return int(re.findall(r"Double (\d+)\.", json.dumps(messages))[0])


def asked(server: OpenAIServer) -> Counter[tuple[int, int]]:
    """How often the model was asked for each step (0 or 1) of each number."""
    return Counter(
        (number_of(request["messages"]), sum(each["role"] == "assistant" for each in request["messages"]))
        for request in server.requests
    )


def once(*numbers: int) -> Counter[tuple[int, int]]:
    """Each step of these numbers, once."""
    return Counter((number, step) for number in numbers for step in (0, 1))


class MakeAgent:
    """Makes agents that share a client."""

    def __init__(self, client: ChatCompletionClient) -> None:
        self.client = client

    def __call__(self, executor: CodeExecutor) -> CodeActAgent:
        return CodeActAgent(
            "coder", executor, model_client=self.client, describe_environment=False, budget=Budget(max_steps=5)
        )


def batch(make: Any, tasks: Any, out: Path | None = None, /, **options: Any) -> Batch:
    """A batch in few sandboxes of bubblewrap; options that `BatchSettings` has are put there."""
    settings = {name: options.pop(name) for name in list(options) if name in BatchSettings.model_fields}
    cheap = {} if "backend" in options else {"sandbox": "bubblewrap"}
    others = {"configuration": {}} | cheap | options
    return run_batch(make, tasks, out=out, settings=BatchSettings(**{"backoff_s": 0.01, **settings}), **others)


async def rows_of(*args: Any, **options: Any) -> list[Row]:
    """The rows of a batch, by id and repeat."""
    rows = [row async for row in batch(*args, **options)]
    return sorted(rows, key=lambda row: (row.id, row.repeat))


def lines(out: Path) -> list[dict[str, Any]]:
    """The rows in the folder of a batch, in their order."""
    data = (out / "results.jsonl").read_bytes()
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def load_rows(out: Path) -> list[Row]:
    """The rows in the folder of a batch, as the product reads them."""
    return list(Results(out))
