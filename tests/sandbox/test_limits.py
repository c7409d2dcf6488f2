"""The default of the memory limit, which is chosen from the machine that runs the sandbox."""

from types import SimpleNamespace
from typing import Any

import pytest

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from codeact_sandbox.backends.docker import engine
from codeact_sandbox.facts import known_facts
from codeact_sandbox.types import limits as module
from codeact_sandbox.types.limits import Limits, machine_memory
from codeact_sandbox.types.options import DockerOptions
from tests.cases import case

GIB = 1024**3


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 2 GiB."""
    monkeypatch.setattr(module, "machine_memory", lambda: 2 * GIB)


def test_the_default_is_a_quarter_of_the_machine_and_at_most_4_gib() -> None:
    for machine, memory in [(64, "4096m"), (16, "4096m"), (8, "2048m"), (1, "256m")]:
        with case(machine, memory):
            found = Limits(cpus=2).resolved(machine * GIB)
            assert (found.memory, found.cpus) == (memory, 2)


def test_an_invalid_limit_of_processor_time_is_refused() -> None:
    for value in [0, -1, float("inf"), float("nan"), "much"]:
        with case(value), pytest.raises(ValueError, match="cpu_seconds"):
            Limits(cpu_seconds=value)  # type: ignore[arg-type]


def test_a_chosen_limit_is_kept() -> None:
    limits = Limits(memory="9g")
    assert limits.resolved(GIB) is limits


@pytest.mark.usefixtures("small_machine")
def test_facts_say_the_default() -> None:
    facts = known_facts(DockerOptions())
    assert (facts.memory_bytes, facts.workspace_bytes) == (GIB // 2, GIB // 8)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("kind", [DockerCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutor])
def test_a_config_does_not_contain_the_machines_memory(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written = kind().dump_component()
    assert "memory" not in written.config["limits"]
    monkeypatch.setattr(module, "machine_memory", lambda: 8 * GIB)
    loaded = kind.load_component(written).sandbox.options.limits
    assert loaded == Limits()
    assert (loaded.memory_bytes, loaded.resolved().workspace) == (2 * GIB, "256m")


def test_the_memory_of_this_machine_is_at_most_what_there_is() -> None:
    with open("/proc/meminfo") as file:
        assert machine_memory() <= int(file.readline().split()[1]) * 1024


def test_an_engine_elsewhere_is_asked_once() -> None:
    asked: list[str] = []

    def info() -> dict[str, int]:
        asked.append("info")
        return {"MemTotal": 8 * GIB}

    client: Any = SimpleNamespace(base_url="http://192.0.2.1:2375", info=info)
    assert [engine.memory_of(client, "docker of a test") for _ in range(3)] == [8 * GIB] * 3
    assert asked == ["info"]
    local: Any = SimpleNamespace(base_url="http+docker://localhost", info=info)
    assert engine.memory_of(local, "docker of another test") is None
