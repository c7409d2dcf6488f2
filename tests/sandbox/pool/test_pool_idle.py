"""Sandboxes of a pool while nobody uses them."""

import logging
import signal

import pytest

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import Hello
from tests.sandbox.pool.pooled import name_of, ready_names, signal_idle, until
from tests.sandbox.pool.test_pool import ONE_KIND, make
from tests.sandbox.sandboxes import out

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class TestIdleSandboxes:
    async def test_idle_sandbox_that_dies_is_replaced_with_a_line_in_the_log(self, kind, caplog):
        caplog.set_level(logging.INFO, "codeact_sandbox")
        async with make(kind, leases=1) as pool:
            await pool.ready()
            (first,) = ready_names(pool)
            signal_idle(kind, signal.SIGKILL)
            await until(lambda: ready_names(pool) - {first})
            async with pool.executor() as executor:
                assert name_of(executor) != first
                assert await out(executor, "print(1)") == "1\n"
        said = [record.getMessage() for record in caplog.records if "has ended while idle" in record.getMessage()]
        assert len(said) == 1
        assert said[0].startswith(f"the pooled sandbox {first} has ended while idle and is replaced: ")

    async def test_sandbox_that_no_longer_answers_is_not_leased(self, kind: str) -> None:
        async with make(kind, leases=1, max_alive=1) as pool:
            await pool.ready()
            (first,) = ready_names(pool)
            signal_idle(kind, signal.SIGSTOP)
            async with pool.executor() as executor:
                assert name_of(executor) != first
                assert await out(executor, "print(1)") == "1\n"

    @ONE_KIND
    async def test_sandboxes_that_die_at_once_are_started_again(self, kind: str) -> None:
        pool = make(kind)
        starts = []
        real = pool.make_client

        def dying() -> RunnerClient:
            client = real()
            start = client.start

            async def start_and_die() -> Hello:
                hello = await start()
                starts.append(client)
                if len(starts) < 3:
                    await client.stop()
                return hello

            client.start = start_and_die  # type: ignore[method-assign]
            return client

        pool.make_client = dying  # type: ignore[method-assign]
        async with pool:
            await until(lambda: len(starts) == 3 and pool.idle == 1, 20)
