"""Calls to host tools that don't end well: deadlines, kills, cancellation; and what the call log has then."""

import asyncio

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import SandboxDied
from tests.sandbox.sandboxes import block, out, run, short_result
from tests.sandbox.tools.host_tools import Endless, short_calls
from tests.sandbox.tools.test_host_tools import Make, add, make, on_one_kind

__all__ = ["make"]

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")


class TestEndOfBlock:
    async def test_end_of_a_block_by_cancellation_cancels_its_calls(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        token = CancellationToken()
        running = asyncio.ensure_future(executor.execute_code_blocks([block("endless()")], token))
        await asyncio.wait_for(endless.begun.wait(), 10)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert endless.ended == ["cancelled"]
        assert await out(executor, "print(add(2))") == "3\n"

    async def test_end_of_a_block_fails_the_calls_of_threads_that_outlive_it(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, endless.wait_until_begun)
        code = """
            import threading
            said = []
            def work():
                try: endless()
                except RuntimeError as error: said.append(str(error))
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            wait_until_begun()
        """
        result = await run(executor, code)
        assert result.outcome == "ok"
        assert sorted(short_calls(result)) == [
            ("endless", {}, "cancelled", "CancelledError"),
            ("wait_until_begun", {}, "ok", None),
        ]
        assert endless.ended == ["cancelled"]
        if executor.mode == "session":
            output = await out(executor, "thread.join(5); print(said)")
            assert output == "['this call to a host tool has no answer, because the block that made it has ended']\n"

    @on_one_kind
    async def test_end_of_a_block_waits_for_the_clean_up_of_a_tool(self, make: Make) -> None:
        cleaned = []

        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.2)
                cleaned.append(True)

        executor = await make(slow, timeout=2)
        assert (await run(executor, "slow()")).outcome == "timeout"
        assert cleaned == [True]

    async def test_death_of_the_sandbox_keeps_the_calls(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = CodeBlock(code="print(add(1))\nendless()", language="python")
        first = CodeBlock(code="add(10)", language="python")
        running = asyncio.ensure_future(executor.execute_code_blocks([first, code], CancellationToken()))
        await asyncio.wait_for(endless.begun.wait(), 10)
        sandbox = executor.sandbox.client
        await asyncio.to_thread(sandbox._launcher.kill)
        with pytest.raises(SandboxDied) as raised:
            await running
        assert [(call.name, call.outcome) for call in raised.value.tool_calls] == [
            ("add", "ok"),
            ("add", "ok"),
            ("endless", "cancelled"),
        ]


class TestCancelledCalls:
    async def test_cancellation_by_a_signal_cancels_the_tool(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = """
            import signal
            def ring(*_):
                raise InterruptedError(f"rang, and {add(1)} is known")
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 1.5)
            try:
                endless()
            except InterruptedError as error:
                print(error)
            print(add(2))
        """
        result = await run(executor, code)
        assert short_result(result) == ("ok", 0, "rang, and 2 is known\n3\n")
        assert [(call.name, call.outcome) for call in result.tool_calls] == [
            ("endless", "cancelled"),
            ("add", "ok"),
            ("add", "ok"),
        ]
        assert endless.ended == ["cancelled"]


class TestOtherProcesses:
    async def test_forked_processes_can_not_call_tools(self, make: Make) -> None:
        executor = await make(add)
        code = """
            import os
            print(add(1), flush=True)
            pid = os.fork()
            if pid == 0:
                try:
                    add(2)
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            print(add(3))
        """
        result = await run(executor, code)
        assert result.output.splitlines() == [
            "2",
            "host tools can be called in the process that runs the block, not in one that it has started: call them there, "
            "before or after, and use threads for calls at the same time",
            "4",
        ]
        assert [call.arguments["a"] for call in result.tool_calls] == [1, 3]


@pytest.mark.parametrize("make", ["docker-session", "bubblewrap-session"], indirect=True)
class TestSessions:
    async def test_sessions_call_tools_after_a_rollback(self, make: Make) -> None:
        executor = await make(add, timeout=1.5)
        await out(executor, "x = add(1)\nimport os")
        for code, outcome in (
            ("add(5); x = 0\nimport time; time.sleep(60)", "timeout"),
            ("x = add(0); os._exit(1)", "crashed"),
        ):
            result = await run(executor, code)
            assert (result.outcome, result.state, len(result.tool_calls)) == (outcome, "restored", 1)
            assert await out(executor, "print(add(x))") == "3\n"
        await executor.checkpoint()
        await out(executor, "x = 7; add = 3")
        await executor.rollback()
        assert await out(executor, "print(add(x))") == "3\n"
