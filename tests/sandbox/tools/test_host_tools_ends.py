"""Calls to host tools that don't end well, the call log then, and what the host allows: limits and approval."""

import asyncio
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import SandboxDied, ToolApproval, ToolApprovalRequest, ToolLimits
from codeact_sandbox.tools import broker
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


@on_one_kind
class TestLimits:
    async def test_limit_on_the_number_of_calls(self, make: Make) -> None:
        executor = await make(add, tool_limits=ToolLimits(calls=3))
        code = """
            for n in range(10):
                try:
                    print(add(n))
                except RuntimeError as error:
                    print(type(error).__name__, error)
        """
        for _ in range(2):  # each block has its own
            result = await run(executor, code)
            assert result.output.splitlines()[:4] == [
                "1",
                "2",
                "3",
                "ToolError ToolBudgetExceeded: a block may make 3 calls to host tools, with 16,777,216 bytes of them; this is "
                "one more",
            ]
            assert short_calls(result) == [("add", {"a": n, "b": 1}, "ok", n + 1) for n in range(3)]
            assert "7 more calls to host tools were refused, because the block had used up its budget." in result.notes

    async def test_limit_on_the_size_of_a_result(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(broker, "ANSWER_BYTES", 10 * 1024)

        async def give(size: int) -> str:
            return "x" * size

        async def many() -> list[list[int]]:
            return [[]] * 1_000_000

        async def give_more() -> str:
            return '"' * 5119 + "x"

        executor = await make(give, give_more, many)
        result = await run(
            executor, "print(len(give(9000)))\ntry: many()\nexcept ValueError as e: print(e)\ngive_more()"
        )
        assert (
            result.error.message
            == "the result has 10,241 bytes; at most 10,240 can be sent: return less, or a part of it"
        )
        assert result.output.startswith(
            "9000\nthe result is larger than the 10,240 bytes that can be sent: return less, or a part of it\n"
        )
        assert [call.outcome for call in result.tool_calls] == ["ok", "error", "error"]

    async def test_limit_on_the_time_of_a_call(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add, tool_limits=ToolLimits(seconds=0.2))
        result = await run(executor, "try: endless()\nexcept TimeoutError as e: print(e)\nprint(add(1))")
        assert short_result(result) == ("ok", 0, "the host tool endless did not answer within 0.2 s\n2\n")
        assert short_calls(result)[0] == ("endless", {}, "timeout", "TimeoutError")
        assert endless.ended == ["cancelled"]


def test_limits_that_can_not_be_right_are_refused() -> None:
    for wrong in (
        {"calls": 0},
        {"seconds": 0},
        {"file_bytes": "much"},
        {"speed": 1},
    ):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            ToolLimits(**wrong)  # type: ignore[arg-type]


@on_one_kind
class TestApproval:
    async def test_approval_is_requested_for_each_call_with_its_details(self, make: Make) -> None:
        asked: list[ToolApprovalRequest] = []

        async def approve(request: ToolApprovalRequest) -> ToolApproval:
            asked.append(request)
            if request.arguments["a"] > 1:
                return ToolApproval(False, "numbers above 1 are too large")
            return ToolApproval(True)

        executor = await make(add, approve_tool=approve)
        code = """
            from host_tools import ToolRefused
            print(add(1))
            try: add(2)
            except ToolRefused as error: print(error)
            try: add(3)
            except PermissionError as error: print(error)
            add(4)
        """
        result = await run(executor, code)
        assert result.output.startswith("2\nnumbers above 1 are too large\nnumbers above 1 are too large\nTraceback")
        assert result.output.endswith("host_tools.ToolRefused: numbers above 1 are too large\n")
        assert (result.error.type, result.error.message) == ("ToolRefused", "numbers above 1 are too large")
        assert [call.outcome for call in result.tool_calls] == ["ok", "refused", "refused", "refused"]
        request = asked[0]
        assert (request.name, request.arguments, request.signature) == (
            "add",
            {"a": 1, "b": 1},
            "(a: int, b: int = 1) -> int",
        )
        assert (request.description, request.language, request.code) == ("Add two numbers.", "python", block(code).code)

    async def test_failing_approval_refuses_the_call(self, make: Make) -> None:
        called = []

        async def tool() -> None:
            called.append(1)

        no: Any = 1
        answers: list[Any] = [
            ZeroDivisionError("oops"),
            SystemExit(3),
            True,
            None,
            ToolApproval(False),
            ToolApproval(no),
        ]

        async def approve(request: ToolApprovalRequest) -> ToolApproval:
            answer = answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]

        executor = await make(tool, approve_tool=approve)
        code = "for _ in range(6):\n    try: tool()\n    except PermissionError as error: print(error)"
        assert (await out(executor, code)).splitlines() == [
            "it could not be approved: ZeroDivisionError: oops",
            "it could not be approved: SystemExit: 3",
            "approve_tool must return a ToolApproval, not a bool",
            "approve_tool must return a ToolApproval, not a NoneType",
            "it was not approved",
            "it was not approved",
        ]
        assert called == []
