"""Choosing an executor by what the machine has."""

import pytest

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    Limits,
    SandboxUnavailable,
)
from autogen_codeact.executors.pool import choose_executor
from tests.sandbox.sandboxes import out


@pytest.fixture
def no_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


async def test_auto_is_docker_where_an_engine_answers(docker_engine):
    executor = await choose_executor(mode="session", timeout=5, image="python:3-slim")
    assert type(executor) is DockerCommandLineCodeExecutor
    assert (executor.mode, executor.timeout) == ("session", 5)


async def test_auto_is_bubblewrap_elsewhere(bubblewrap, no_engine, tmp_path):
    executor = await choose_executor(mode="session", work_dir=tmp_path, limits=Limits(memory="256m"))
    assert type(executor) is BubblewrapCommandLineCodeExecutor
    async with executor:
        assert await out(executor, "print(1)") == "1\n"


async def test_docker_by_name_is_used_also_without_an_engine(no_engine):
    executor = await choose_executor("docker")
    with pytest.raises(SandboxUnavailable):
        await executor.start()


@pytest.mark.parametrize(("sandbox", "option"), [("bubblewrap", "image"), ("docker", "readable")])
async def test_an_option_of_another_sandbox_is_an_error(sandbox, option):
    with pytest.raises(ValueError, match=f"{option}= is not for sandbox='{sandbox}'"):
        await choose_executor(sandbox, **{option: "x"})
