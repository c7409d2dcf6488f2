"""Bad arguments, configurations, keys and folders: each gives a clear error, and a good run follows."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from autogen_core import CancellationToken, ComponentModel
from autogen_core.code_executor import CodeBlock
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    Limits,
    SandboxFileError,
)
from autogen_codeact.teams import Team
from tests.bench import ALONE, EVERYBODY, IN_A_TEAM, PAIR, Bench
from tests.cases import case
from tests.openai_server import OpenAIServer, structured
from tests.wire import fenced, texts_of

pytestmark = [pytest.mark.usefixtures("docker_engine"), structured]

PRINT_42 = fenced("print(6 * 7)\n")
EXECUTOR = "autogen_codeact.executors.DockerCommandLineCodeExecutor"
AGENT = "autogen_codeact.agents.CodeExecutorAgent"
CONDITION = "autogen_agentchat.conditions.MaxMessageTermination"


# Arguments


def test_too_little_memory_is_refused() -> None:
    for size in [512, "512", 1024, "19m", "1m", 20 * 1024**2 - 1]:
        with case(size):
            with pytest.raises(ValueError, match=r"memory=.* bytes, and a sandbox needs 20m to start") as caught:
                Limits(memory=size)
            assert (f"; did you mean '{size}m'?" in str(caught.value)) == str(size).isdigit()


@pytest.mark.parametrize("kind", [DockerCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutor])
@pytest.mark.parametrize("mode", ["process", "session"])
async def test_sandbox_starts_with_the_minimum_of_memory(kind: Any, mode: str) -> None:
    async with kind(limits=Limits(memory="20m"), mode=mode) as executor:
        result = await executor.execute_code_blocks(
            [CodeBlock(code="print(1)", language="python")], CancellationToken()
        )
    assert (result.exit_code, result.output) == (0, "1\n")


# Configurations


def config_of(kind: str) -> dict[str, Any]:
    """Return a configuration in the form of a file."""
    executor = DockerCommandLineCodeExecutor(timeout=20)
    component: Any = executor
    if kind != "executor":
        component = CodeExecutorAgent("runner", executor)
    if kind == "team":
        component = Team([component], max_turns=1)
    loaded: dict[str, Any] = json.loads(component.dump_component().model_dump_json(exclude_none=True))
    return loaded


def load(config: dict[str, Any]) -> Any:
    provider = config["provider"].rpartition(".")[2]
    classes: dict[str, Any] = {c.__name__: c for c in (DockerCommandLineCodeExecutor, CodeExecutorAgent, Team)}
    return classes[provider].load_component(ComponentModel.model_validate(config))


def part(config: dict[str, Any], path: str) -> Any:
    for step in path.split("."):
        config = config[int(step)] if isinstance(config, list) else config[step]
    return config


async def prints_42(config: dict[str, Any]) -> None:
    """Load the corrected configuration and run it."""
    loaded = load(config)
    runner = CodeExecutorAgent("runner", loaded) if isinstance(loaded, DockerCommandLineCodeExecutor) else loaded
    executor = (runner._participants[0] if isinstance(runner, Team) else runner)._code_executor
    async with executor:
        assert texts_of((await runner.run(task=PRINT_42)).messages)[-1] == ("runner", "42\n")


async def test_unknown_key_is_named() -> None:
    for kind, paths in [
        ("executor", ["config", "config.limits"]),
        ("agent", ["config", "config.code_executor.config"]),
        (
            "team",
            ["config", "config.participants.0.config", "config.participants.0.config.code_executor.config"],
        ),
    ]:
        with case(kind, paths):
            config = config_of(kind)
            for path in paths:
                part(config, path)["tiemout"] = 3
                with pytest.raises(ValueError, match=r"tiemout\n  Extra inputs are not permitted"):
                    load(config)
                del part(config, path)["tiemout"]
            await prints_42(config)


FOREIGN = {
    "agent": [
        ("config.code_executor", AGENT, f"code_executor names {AGENT}, which is not a CodeExecutor"),
        ("config.code_executor", CONDITION, f"code_executor names {CONDITION}, which is not a CodeExecutor"),
        ("config.code_executor", "subprocess.Popen", "code_executor names subprocess.Popen, which is not"),
        ("config.code_executor", "no.where.Executor", "code_executor names no.where.Executor, which can't"),
        ("config.model_context", EXECUTOR, f"model_context names {EXECUTOR}, which is not"),
    ],
    "team": [
        ("config.participants.0", EXECUTOR, rf"participants\[0\]: {EXECUTOR} "),
        ("config.participants.0", CONDITION, rf"participants\[0\]: {CONDITION} "),
        (
            "config.participants.0.config.code_executor",
            AGENT,
            rf"participants\[0\]: .*code_executor names {AGENT}",
        ),
        ("config.termination_condition", AGENT, f"termination_condition: {AGENT} "),
        ("config.termination_condition", EXECUTOR, f"termination_condition: {EXECUTOR} "),
    ],
}


async def test_foreign_class_is_named_with_its_position() -> None:
    for kind, parts in FOREIGN.items():
        with case(kind):
            for path, provider, words in parts:
                config, parent, key = config_of(kind), *path.rsplit(".", 1)
                holder = part(config, parent)
                foreign = {EXECUTOR: config_of("executor"), AGENT: config_of("agent")}.get(provider)
                changed = foreign or {"provider": provider, "config": {"max_messages": 3, "args": ["touch", "foreign"]}}
                holder[int(key) if isinstance(holder, list) else key] = changed
                with pytest.raises((TypeError, ValueError, ImportError), match=words):
                    load(config)
                assert "foreign" not in os.listdir(), path
            await prints_42(config_of(kind))


# Keys


@pytest.mark.parametrize("kind", EVERYBODY)
async def test_config_without_a_key_names_the_source_of_keys(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(openai.OpenAIError, match="OPENAI_API_KEY"):
        OpenAIChatCompletionClient(model="gpt-4o")

    async with OpenAIServer([]) as server:
        executor = DockerCommandLineCodeExecutor(timeout=20)
        bench = Bench(kind, server, executor)
        text = bench.whom.dump_component().model_dump_json(exclude_none=True)
        assert "none-needed" not in text
        config = json.loads(text)
        client = config["config"] if kind == ALONE else config["config"]["participants"][0]["config"]
        assert client["model_client"]["config"].pop("api_key") == "**********"
        with pytest.raises((openai.OpenAIError, ValueError), match="OPENAI_API_KEY"):
            type(bench.whom).load_component(ComponentModel.model_validate(config))

        monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
        bench.whom = type(bench.whom).load_component(ComponentModel.model_validate(config))
        loaded = bench.whom if kind == ALONE else bench.whom._participants[-1]
        async with loaded._code_executor:
            await bench.works()
        await (bench.whom if kind == ALONE else bench.whom._participants[0])._model_client.close()


# Folders


@pytest.mark.parametrize("kind", EVERYBODY)
async def test_work_dir_below_a_file_is_an_error_until_corrected(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with OpenAIServer([]) as server:
        executor = DockerCommandLineCodeExecutor(work_dir=tmp_path / "file" / "below", timeout=20)
        with pytest.raises(SandboxFileError, match=r"work_dir .*file/below can't be used"):
            await executor.start()
        bench = Bench(kind, server, executor)
        with pytest.raises(SandboxFileError, match=r"work_dir .*file/below can't be used"):
            await bench.run(PRINT_42)
        (tmp_path / "file").unlink()
        async with executor:
            await bench.works()


@contextmanager
def without_rights() -> Iterator[None]:
    """Run as an ordinary user for a while, because root may write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def allow(folder: Path) -> None:
    folder.chmod(0o755)


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """A folder that everybody may read and nobody may write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        yield Path(folder)
        allow(Path(folder))


@pytest.mark.parametrize("kind", [ALONE, IN_A_TEAM, PAIR])
async def test_work_dir_that_can_not_be_created_is_an_error_until_it_can(kind: str, forbidden: Path) -> None:
    async with OpenAIServer([]) as server:
        executor = DockerCommandLineCodeExecutor(work_dir=forbidden / "new", timeout=20)
        bench = Bench(kind, server, executor)
        with without_rights(), pytest.raises(SandboxFileError, match=r"work_dir .*new can't be used"):
            await bench.run(PRINT_42)
        allow(forbidden)
        async with executor:
            await bench.works()


@pytest.mark.parametrize("kind", [ALONE, PAIR])
async def test_files_that_the_host_can_not_write_stay_in_the_sandbox_with_a_note(kind: str, forbidden: Path) -> None:
    code = "with open('made.txt', 'w') as file:\n    file.write('made')\nprint('done')\n"
    async with (
        OpenAIServer([]) as server,
        DockerCommandLineCodeExecutor(work_dir=forbidden, timeout=20) as executor,
    ):
        bench = Bench(kind, server, executor)
        with without_rights():
            await bench.run(fenced(code), "I see. TERMINATE")
            assert os.listdir(forbidden) == []
        who, words = bench.last_message_to_model()
        assert who == bench.runner
        assert words.startswith("done\n\nFiles made or changed: made.txt (4 bytes; ")
        assert "this user has no permission" in words
        allow(forbidden)
        await bench.works()


async def test_too_short_timeout_is_refused() -> None:
    for timeout in [0, -1, 0.0, float("nan")]:
        with case(timeout):
            with pytest.raises(ValueError, match=r"Timeout must be greater than or equal to 1 ms"):
                DockerCommandLineCodeExecutor(timeout=timeout)
            model = DockerCommandLineCodeExecutor().dump_component()
            model.config["timeout"] = timeout
            with pytest.raises(ValueError, match=r"Timeout must be greater than or equal to 1 ms"):
                DockerCommandLineCodeExecutor.load_component(model)


async def test_component_of_another_class_is_refused() -> None:
    for kind, provider in [("executor", AGENT), ("agent", EXECUTOR), ("team", AGENT)]:
        with case(kind, provider):
            config = config_of("agent" if provider == AGENT else "executor")
            asked: dict[str, Any] = {
                "executor": DockerCommandLineCodeExecutor,
                "agent": CodeExecutorAgent,
                "team": Team,
            }
            with pytest.raises(TypeError, match="Expected type does not match"):
                asked[kind].load_component(ComponentModel.model_validate(config))
            await prints_42(config)
