"""How many sandboxes a batch starts: also if they are used by several tasks, one after the other."""

from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import run_batch
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox import backend_selection as select
from codeact_sandbox import pool_manager
from codeact_sandbox.host.client import RunnerClient
from tests.batch.support import MakeAgent, double, rows_of
from tests.openai_server import OpenAIServer


class MakeWatchedAgent:
    """Makes agents, and keeps their executors."""

    def __init__(self, make: MakeAgent) -> None:
        self.make = make
        self.executors: list[SandboxCodeExecutor] = []

    def __call__(self, executor: CodeExecutor) -> CodeActAgent:
        assert isinstance(executor, SandboxCodeExecutor)
        self.executors.append(executor)
        return self.make(executor)

    @property
    def names(self) -> list[str | None]:
        """Names of the sandboxes, in the order of their use."""
        return [executor.sandbox.name for executor in self.executors]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reset take as long as a loaded machine needs."""
    monkeypatch.setattr(pool_manager, "RESET_TIMEOUT_S", 30.0)


async def test_as_many_tasks_as_allowed_share_a_sandbox(server: OpenAIServer, make: MakeAgent, tmp_path: Path) -> None:
    watched = MakeWatchedAgent(make)
    options = {"concurrency": 1, "max_sandboxes": 1}
    rows = await rows_of(watched, [double(n) for n in range(4)], tmp_path, sandbox_uses=3, **options)

    assert [(row.outcome, row.answer) for row in rows] == [("completed", str(2 * n)) for n in range(4)]
    names = watched.names
    assert [name == names[0] for name in names] == [True, True, True, False]

    # It is a limit like the others: the same batch can go on with another one.
    more = await rows_of(watched, [double(n) for n in range(5)], tmp_path, sandbox_uses=1, **options)
    assert [row.answer for row in more] == ["8"]


@pytest.mark.parametrize("repeat", [1, 2])
async def test_no_sandbox_is_started_that_no_task_uses(
    make: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeat: int
) -> None:
    watched, started = MakeWatchedAgent(make), list[str]()
    make_client = select.make_client

    def record(*args: Any, **options: Any) -> RunnerClient:
        client = make_client(*args, **options)
        started.append(client.name)
        return client

    monkeypatch.setattr(select, "make_client", record)
    rows = await rows_of(watched, [double(n) for n in range(5)], tmp_path, concurrency=3, repeat=repeat, sandbox_uses=1)

    assert [row.outcome for row in rows] == ["completed"] * 5 * repeat
    assert sorted(started) == sorted(str(name) for name in watched.names)
    assert len(set(started)) == 5 * repeat


def test_number_of_uses_has_to_be_positive(make: MakeAgent) -> None:
    with pytest.raises(ValueError, match="sandbox_uses must be at least 1, not 0"):
        run_batch(make, [], sandbox_uses=0)
