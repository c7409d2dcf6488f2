"""Choosing an executor by what the machine has."""

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    Limits,
    SandboxUnavailable,
)
from autogen_codeact.executors.auto import choose_executor
from tests.cases import case
from tests.sandbox.sandboxes import out


@pytest.fixture
def no_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


class TestAuto:
    async def test_auto_is_docker_where_an_engine_answers(self, docker_engine):
        executor = await choose_executor(mode="session", timeout=5, image="python:3-slim")
        assert type(executor) is DockerCommandLineCodeExecutor
        assert (executor.mode, executor.timeout) == ("session", 5)

    async def test_auto_is_bubblewrap_elsewhere(self, bubblewrap, no_engine, tmp_path):
        executor = await choose_executor(mode="session", work_dir=tmp_path, limits=Limits(memory="256m"))
        assert type(executor) is BubblewrapCommandLineCodeExecutor
        async with executor:
            assert await out(executor, "print(1)") == "1\n"


class TestByName:
    async def test_docker_by_name_is_used_also_without_an_engine(self, no_engine):
        executor = await choose_executor("docker")
        with pytest.raises(SandboxUnavailable):
            await executor.start()

    async def test_an_option_of_another_sandbox_is_an_error(self) -> None:
        for sandbox, option in [
            ("bubblewrap", "image"),
            ("bubblewrap", "network"),
            ("docker", "readable"),
            ("none", "limits"),
        ]:
            with case(sandbox, option), pytest.raises(ValueError, match=f"{option}= is not for sandbox='{sandbox}'"):
                await choose_executor(sandbox, **{option: "x"})

    async def test_another_name_is_an_error(self):
        with pytest.raises(ValueError, match="must be 'auto', 'docker', 'bubblewrap' or 'none', not 'firejail'"):
            await choose_executor("firejail")


class TestNone:
    async def test_none_is_autogens_local_executor_and_warns(self, tmp_path):
        with pytest.warns(UserWarning, match="sandbox='none'") as warned:
            executor = await choose_executor("none", timeout=2.5, work_dir=tmp_path)
        assert [str(warning.message) for warning in warned] == [
            "sandbox='none': code runs on this machine with your rights, and nothing holds it back"
        ]
        assert type(executor) is LocalCommandLineCodeExecutor
        assert executor.timeout == 3
        async with executor:
            result = await executor.execute_code_blocks(
                [CodeBlock(code="print(1)", language="python")], CancellationToken()
            )
        assert result.output.strip() == "1"

    async def test_none_has_no_sessions(self):
        with pytest.raises(ValueError, match="mode='session' is not for sandbox='none'"):
            await choose_executor("none", mode="session")
