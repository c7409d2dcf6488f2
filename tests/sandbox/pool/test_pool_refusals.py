"""What a pool refuses, and what it does while no sandbox can be started."""

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    ExecutorPool,
    Limits,
    SandboxNotStarted,
    SandboxStartError,
    SandboxUnavailable,
)
from codeact_sandbox import SandboxPool
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions
from tests.abuse.engine_proxy import EngineProxy, engine_proxy, failure
from tests.cases import case
from tests.sandbox.pool.pooled import until
from tests.sandbox.sandboxes import out

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture
def proxy(sandbox_image: str) -> Iterator[EngineProxy]:
    """The engine behind a socket that misbehaves on request."""
    with engine_proxy() as made:
        yield made


class TestArguments:
    def test_invalid_arguments_are_refused(self) -> None:
        for options, complaint in [
            ({"size": -1}, "size must be at least 0, not -1"),
            ({"max_alive": 0}, "max_alive must be at least 1, not 0"),
            ({"size": 5, "max_alive": 4}, "size=5 is above max_alive=4: those that are ready count, too"),
            ({"acquire_timeout": -1.5}, "acquire_timeout must be above 0 seconds, not -1.5"),
            ({"backend": "none"}, "the backend must be 'auto', 'docker' or 'bubblewrap', not 'none'"),
            ({"mode": "repl"}, "mode must be 'process' or 'session', not 'repl'"),
            (
                {"backend": "bubblewrap", "image": "python:3"},
                "image= is not for sandbox='bubblewrap': leave it out, or choose another sandbox",
            ),
            (
                {"container_name": "x"},
                "container_name= is not for a pool: the sandboxes of a pool have names of their own",
            ),
            (
                {"bind_dir": "/tmp"},
                "bind_dir= is not for a pool: sandboxes that are used one after the other would share a folder: use work_dir=",
            ),
            ({"stop_container": False}, "stop_container= is not for a pool: the end of a lease ends its sandbox"),
        ]:
            with case(options, complaint), pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
                ExecutorPool(**options)

    def test_arguments_that_differ_from_the_pool_are_refused(self) -> None:
        for options, differing in [
            ({"limits": Limits(memory="2g")}, "limits"),
            ({"mode": "session", "checkpoint": False, "network": "bridge"}, "checkpoint, mode, network"),
            ({"environment": {"KEY": "another value"}}, "environment"),
            ({"packages": ["requests"]}, "packages"),
            ({"docker_host": "tcp://127.0.0.1:1"}, "docker_host"),
        ]:
            with case(options, differing):
                pool = ExecutorPool(environment={"KEY": "a value"})
                text = (
                    f"the options of the pool differ in {differing}: all its sandboxes are of one kind. Give both the "
                    "same, leave them and backend= out here, or use another pool"
                )
                for make in (pool.executor, DockerCommandLineCodeExecutor):
                    same: dict[str, Any] = (
                        {} if make == pool.executor else {"environment": {"KEY": "a value"}, "pool": pool}
                    )
                    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
                        make(**{**same, **options})

    def test_new_option_of_the_sandbox_is_compared(self) -> None:
        """Unless it is among those that may differ for each run."""
        for options in (DockerOptions(), BubblewrapOptions()):
            assert set(options.shape()) >= set(type(options).model_fields) - options.per_run

    def test_executor_of_another_class_is_refused(self) -> None:
        with pytest.raises(ValueError, match="are for docker, not for bubblewrap") as caught:
            BubblewrapCommandLineCodeExecutor(pool=ExecutorPool())
        assert str(caught.value).endswith(": make a pool of the other kind")

    async def test_pool_that_does_not_run_is_an_error(self) -> None:
        pool = ExecutorPool()
        text = "the pool is not running: use `async with pool:`, or start() first"
        for call in (pool.ready, pool.acquire, pool.executor().start):
            with pytest.raises(SandboxNotStarted) as caught:
                await call()
            assert str(caught.value) == text
        assert (pool.idle, pool.leased) == (0, 0)
        await pool.stop()


class TestNoEngine:
    async def test_missing_engine_is_said_at_once_and_only_once_in_the_log(self, tmp_path, caplog):
        host = f"unix://{tmp_path}/docker.sock"
        async with ExecutorPool(3, docker_host=host) as pool:
            began = time.monotonic()
            for call in (pool.ready, pool.executor().start, pool.acquire):
                with pytest.raises(SandboxUnavailable, match=r"there is no such socket\. Start it with"):
                    await call()
            await asyncio.sleep(1)
            assert time.monotonic() - began < 40
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warned) <= 1
        assert all(
            "no sandbox could be started for the pool, it tries again with the next request" in text for text in warned
        )

    async def test_engine_that_comes_back_is_used_again(self, proxy: EngineProxy) -> None:
        proxy.on("POST", "containers/create", "answer", reply=failure(500, "no room"))
        async with ExecutorPool(2, docker_host=proxy.address, progress=lambda _: None) as pool:
            for _ in range(2):
                with pytest.raises(SandboxStartError, match="no room"):
                    await pool.acquire()
            proxy.clear()
            async with pool.executor() as executor:
                assert await out(executor, "print(1)") == "1\n"
                await until(lambda: pool.idle == 2, 40)


@pytest.mark.parametrize("kind", ["docker", "bubblewrap"])
async def test_ready_says_which_option_is_broken(request: pytest.FixtureRequest, kind: str) -> None:
    request.getfixturevalue("docker_engine" if kind == "docker" else "bubblewrap")
    async with SandboxPool(1, backend=kind, preload=["nonsense"]) as pool:  # type: ignore[arg-type]
        with pytest.raises(SandboxStartError, match=r"No module named 'nonsense'\): correct `preload=`, or let the"):
            await pool.ready()
