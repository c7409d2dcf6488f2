"""Sandboxes that a pool uses several times: a reset between two uses, and a new sandbox where that can't be proven."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from autogen_codeact.executors import ExecutorPool, Limits, SandboxDied
from codeact_sandbox import pool_manager
from tests.sandbox.pool.pooled import alive, left, name_of, until, what_is_new
from tests.sandbox.sandboxes import out

SMALL = Limits(memory="128m", pids=32, workspace="8m", tmp="8m", files=5000)


@pytest.fixture(autouse=True)
def nothing_is_left(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Containers, processes, threads, descriptors and control groups are after the test what they were before it."""
    monkeypatch.setattr(pool_manager, "RESET_TIMEOUT_S", 30.0)  # a loaded machine must not change what a test sees
    before = left()
    yield
    assert what_is_new(before) == {}


# What the pool decides is the same code for both.
ONE_KIND = pytest.mark.parametrize("kind", ["bubblewrap"], indirect=True)


def make(kind: str, max_uses: int = 20, **options: Any) -> ExecutorPool:
    """A pool that has one sandbox at a time, so that each lease gets the one of the last if that can be used again."""
    return ExecutorPool(1, backend=kind, max_alive=1, max_uses=max_uses, **{"limits": SMALL, "timeout": 30, **options})  # type: ignore[arg-type]


LOOK_FOR_X = "import os; print('x' in globals(), os.path.exists('/tmp/x'))"


class TestUses:
    @ONE_KIND
    async def test_sandbox_has_as_many_uses_as_allowed(self, kind):
        names = []
        async with make(kind, 3, mode="session") as pool:
            for _ in range(5):
                async with pool.executor() as executor:
                    names.append(name_of(executor))
                    assert await out(executor, "'x' in globals()") == "False\n"
                    await out(executor, "x = 1")
        assert [names[0] == name for name in names] == [True, True, True, False, False]
        assert names[3] == names[4]

    @ONE_KIND
    async def test_several_event_loops_share_one_sandbox(self, kind):
        seen: list[str] = []
        async with make(kind, 50, mode="session") as pool:

            async def lease(number: int) -> None:
                for _ in range(4):
                    async with pool.executor() as executor:
                        seen.append(f"{name_of(executor)} {await out(executor, f'n = {number} * 7; print(n)')}")

            threads = [threading.Thread(target=lambda number=number: asyncio.run(lease(number))) for number in (1, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        assert len({line.split()[0] for line in seen}) == 1
        assert sorted(line.split()[1] for line in seen) == ["14"] * 4 + ["7"] * 4


class TestReset:
    @ONE_KIND
    async def test_reset_keeps_the_files_of_each_executor_apart(self, kind, tmp_path):
        async with make(kind, mode="session") as pool:
            for number in range(2):
                folder = tmp_path / str(number)
                folder.mkdir()
                (folder / f"in{number}.txt").write_text("in")
                async with pool.executor(work_dir=folder) as executor:
                    await out(executor, f"open('out{number}.txt', 'w').write('out')")
                assert sorted(path.name for path in folder.iterdir()) == [f"in{number}.txt", f"out{number}.txt"]

    @ONE_KIND
    async def test_reset_makes_the_last_client_unusable(self, kind):
        async with make(kind, mode="session") as pool:
            async with pool.executor() as executor:
                name, client = name_of(executor), executor.sandbox.client
                assert client is not None
            await until(lambda: pool.idle == 1)
            with pytest.raises(SandboxDied, match=f"this use of the sandbox {name} has ended: start again"):
                await client.requests.list_files()
            with pytest.raises(SandboxDied, match="has ended"):
                await client.blocks.run({}, b"", 1)
            assert (client.alive, client.blocks.interrupt()) == (False, False)
            await client.stop()
            async with pool.executor() as executor:
                assert (name_of(executor), await out(executor, "print(3)")) == (name, "3\n")


class TestSizeZero:
    """With `size=0`."""

    @ONE_KIND
    async def test_sandbox_starts_with_the_first_use_and_is_used_again_after_a_reset(self, kind):
        async with ExecutorPool(0, backend=kind, max_uses=9, limits=SMALL, mode="session") as pool:  # type: ignore[arg-type]
            await pool.ready()
            assert (alive(kind), pool.idle, pool.leased) == (0, 0, 0)
            names = []
            for _ in range(2):
                async with pool.executor() as executor:
                    names.append(name_of(executor))
                    assert await out(executor, LOOK_FOR_X) == "False False\n"
                    await out(executor, "x = open('/tmp/x', 'w')")
                    assert alive(kind) == 1
            await until(lambda: pool.idle == 1)
        assert names == [names[0]] * 2
        assert alive(kind) == 0


class TestFacts:
    @ONE_KIND
    async def test_facts_of_all_fresh_sandboxes_are_the_same(self, kind, tmp_path):
        for name in ("b.txt", ".hidden", "a/y.txt", "a/b/x.txt", "c/.d/z.txt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        found = []
        async with make(kind, mode="session") as pool:
            for _ in range(3):
                async with pool.executor(work_dir=tmp_path) as executor:
                    found.append(await executor.facts())
        assert found[0].files.shown == (("b.txt", 5), ("a/y.txt", 7), ("a/b/x.txt", 9))
        assert found[0].python is not None
        assert found[1:] == found[:1] * 2

    @ONE_KIND
    async def test_facts_of_a_sandbox_in_which_code_has_run_are_not_those_of_the_next(self, kind):
        async with make(kind, mode="session") as pool:
            async with pool.executor() as executor:
                await out(executor, "import sys; sys.version_info = (9,); open('later.txt', 'w').close()")
                found = await executor.facts()
                assert not found.python.startswith("9")
                assert found.files.shown == (("later.txt", 0),)
            async with pool.executor() as executor:
                assert (await executor.facts()).files.shown == ()


class TestReplacement:
    @ONE_KIND
    async def test_new_sandbox_follows_one_that_can_not_be_proven_clean(self, kind, caplog):
        caplog.set_level(logging.INFO, "codeact_sandbox")
        code = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
        async with make(kind, mode="session") as pool:
            async with pool.executor() as executor:
                name = name_of(executor)
                await out(executor, code)
            async with pool.executor() as executor:
                assert name_of(executor) != name
        expected = f"the pooled sandbox {name} is replaced after its use: its code has used the network of the sandbox"
        assert [record.getMessage() for record in caplog.records if "replaced" in record.getMessage()] == [expected]

    @ONE_KIND
    async def test_new_sandbox_follows_one_whose_reset_takes_too_long(self, kind, monkeypatch):
        monkeypatch.setattr(pool_manager, "RESET_TIMEOUT_S", 0.0)
        async with make(kind, mode="session") as pool:
            async with pool.executor() as executor:
                name = name_of(executor)
                await out(executor, "for n in range(3000): open('/tmp/%d' % n, 'w')")
            async with pool.executor() as executor:
                assert name_of(executor) != name

    @ONE_KIND
    async def test_new_sandbox_follows_a_start_that_failed_in_the_lease(self, kind):
        async with make(kind, mode="session") as pool:
            with pytest.raises(RuntimeError, match="init_command failed"):
                await pool.executor(init_command="exit 3").start()
            async with pool.executor() as executor:
                assert await out(executor, "print(4)") == "4\n"

    @ONE_KIND
    async def test_no_sandbox_is_started_when_the_pool_stops_during_a_reset(self, kind):
        async with make(kind, mode="session") as pool:
            executor = pool.executor()
            await executor.start()
            await out(executor, "for n in range(3000): open('/tmp/%d' % n, 'w')")
            await executor.stop()
        assert alive(kind) == 0


class TestRefusals:
    @ONE_KIND
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"extra_volumes": {"/srv": {"bind": "/srv"}}}, "extra_volumes=: files in folders of the host stay"),
            ({"network": "bridge"}, "network=: what the code has done there can't be undone"),
            ({"read_only": False}, "read_only=: the code could write to the whole root file system"),
            ({"seccomp": "engine"}, "seccomp=: it is proven for the list of system calls"),
            ({"runtime": "runsc"}, "runtime=: it is proven for runc and crun only"),
            ({"user": "0:0"}, "user=: root could change files that are not emptied"),
            ({"device_requests": [{"count": 1}]}, "device_requests=: the memory of devices is not emptied"),
        ],
    )
    def test_reuse_is_refused_with_options_under_which_something_could_survive(self, kind, options, message):
        with pytest.raises(ValueError, match=f"max_uses above 1 is not possible with {message}"):
            ExecutorPool(max_uses=2, **options)
        ExecutorPool(max_uses=1, **options)
