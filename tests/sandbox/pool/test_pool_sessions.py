"""Sandboxes of a pool that are found by a key."""

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from codeact_sandbox import AsyncSandbox, SandboxError, SandboxPool
from codeact_sandbox.session.keyed_sandboxes import KeyedSandboxes
from tests.sandbox.pool.pooled import until


class Box:
    """A sandbox that only counts its stops."""

    def __init__(self, error: Exception | None = None) -> None:
        self.stops = 0
        self._error = error

    async def stop(self) -> None:
        self.stops += 1
        if self._error is not None:
            raise self._error


class Users:
    """Users of sandboxes that are made of nothing."""

    def __init__(self, most: int) -> None:
        self.sandboxes = KeyedSandboxes(most)
        self.made: list[Box] = []

    def use(self, key: str, idle_s: float = 60, error: Exception | None = None) -> Any:
        return self.sandboxes.use(key, partial(self._make, error), idle_s)

    def _make(self, error: Exception | None) -> AsyncSandbox:
        self.made.append(Box(error))
        return cast(AsyncSandbox, self.made[-1])

    @property
    def stops(self) -> list[int]:
        return [box.stops for box in self.made]


async def test_a_key_has_one_sandbox_until_it_is_ended() -> None:
    users = Users(2)
    async with users.use("a") as first, users.use("a") as second, users.use("b") as other:
        assert first is second is not other
    await users.sandboxes.end("a")
    await users.sandboxes.end("a")
    async with users.use("a") as third:
        assert third is not first
    await users.sandboxes.end_all()
    assert users.stops == [1, 1, 1]


async def test_an_idle_sandbox_ends_but_not_one_in_use() -> None:
    users = Users(3)
    async with users.use("a", 0.01):
        async with users.use("a", 0.01):
            pass
        async with users.use("b", 0.01):
            pass
        await until(lambda: users.stops == [0, 1])
        await asyncio.sleep(0.05)
        assert users.stops == [0, 1]
    await until(lambda: users.stops == [1, 1])


async def test_a_further_key_ends_the_one_unused_for_longest() -> None:
    users = Users(2)
    for key in ("a", "b", "a"):
        async with users.use(key):
            pass
    async with users.use("c"):
        assert users.stops == [0, 1, 0]
        async with users.use("a"):
            with pytest.raises(SandboxError, match="all 2 sessions are in use: try again later"):
                async with users.use("d"):
                    pass
    assert "d" not in users.sandboxes
    assert users.stops == [0, 1, 0, 0]


async def test_a_failed_end_of_an_idle_sandbox_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    users = Users(1)
    async with users.use("a", 0.01, SandboxError("no engine")):
        pass
    await until(lambda: caplog.messages)
    assert caplog.messages == ["an idle sandbox could not be stopped: no engine"]


@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
@pytest.mark.usefixtures("nothing_is_left")
async def test_users_of_a_pool_keep_their_variables_apart(request: pytest.FixtureRequest, backend: Any) -> None:
    request.getfixturevalue("docker_engine" if backend == "docker" else "bubblewrap")

    def greet(name: str) -> str:
        """Greet a person."""
        return f"Hello, {name}!"

    async def ask(pool: SandboxPool, user: str, code: str) -> str:
        async with pool.session(user, idle=60, timeout=30) as box:
            return (await box.run(code)).check().output

    async with SandboxPool(1, backend=backend, tools=[greet], max_alive=2) as pool:
        with pytest.raises(ValueError, match="idle must be above 0 seconds"):
            pool.session("ada", idle=0)
        await asyncio.gather(ask(pool, "ada", "x = 1"), ask(pool, "bob", "x = 2"))
        found = await asyncio.gather(ask(pool, "ada", "print(greet('Ada'), x)"), ask(pool, "bob", "print(x)"))
        assert found == ["Hello, Ada! 1\n", "2\n"]
        await pool.end_session("ada")
        assert await ask(pool, "ada", "print('x' in globals())") == "False\n"
        assert pool.leased == 2
