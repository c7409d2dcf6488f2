"""Calls to host tools that don't end well: limits, approvals, deadlines, kills, cancellation; and what the ledger says then."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import pytest
from autogen_core import CancellationToken, Image
from autogen_core.code_executor import CodeBlock
from PIL import Image as Pillow

from autogen_codeact.executors import (
    SandboxDied,
    ToolApproval,
    ToolApprovalRequest,
    ToolLimits,
)
from autogen_codeact.executors.tools.tool import ToolAnswer

from .host_tools import Tool, in_short
from .sandboxes import block, out, run, told
from .test_host_tools import Make, add, make

__all__ = ["make"]

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")


class Endless:
    """A tool that begins and does not end by itself; knows how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def endless(self) -> str:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "never"


class TestLimits:
    async def test_on_the_number_of_calls(self, make: Make) -> None:
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
                "ToolError ToolBudgetExceeded: a block may make 3 calls to host tools with 16m of arguments, and has made them",
            ]
            assert in_short(result) == [("add", {"a": n, "b": 1}, "ok", n + 1) for n in range(3)]
            assert "7 more calls to host tools were refused, because the block had used up its budget." in result.notes

    async def test_on_how_many_run_at_once(self, make: Make) -> None:
        running = most = 0

        async def count() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

        executor = await make(count, tool_limits=ToolLimits(in_flight=3))
        code = """
            import asyncio
            from concurrent.futures import ThreadPoolExecutor
            async def main():
                await asyncio.gather(*(count.aio() for _ in range(30)))
            asyncio.run(main())
            with ThreadPoolExecutor(10) as pool:
                for _ in range(30):
                    pool.submit(count)
        """
        result = await run(executor, code)
        assert (result.outcome, len(result.tool_calls), most) == ("ok", 60, 3)

    async def test_on_the_size_of_a_call(self, make: Make) -> None:
        executor = await make(add, tool_limits=ToolLimits(call_bytes="10k"))
        result = await run(executor, "add('x' * 9000, '')\nadd('x' * 11000)")
        assert result.error is not None
        assert (result.error.type, result.error.message) == (
            "ValueError",
            "the arguments of add have 11041 bytes; at most 10240 can be sent",
        )
        assert [call.outcome for call in result.tool_calls] == ["ok"]

    async def test_on_the_size_of_a_result(self, make: Make) -> None:
        async def give(size: int) -> str:
            return "x" * size

        async def many() -> list[list[int]]:
            return [[]] * 1_000_000

        async def give_more() -> str:
            return '"' * 5119 + "x"

        executor = await make(give, give_more, many, tool_limits=ToolLimits(answer_bytes="10k"))
        result = await run(
            executor, "print(len(give(9000)))\ntry: many()\nexcept ValueError as e: print(e)\ngive_more()"
        )
        assert result.error is not None
        assert (
            result.error.message == "the result has 10,241 bytes; at most 10,240 can be sent: give back less, or a part"
        )
        assert result.output.startswith(
            "9000\nthe result is larger than the 10,240 bytes that can be sent: give back less, or a part\n"
        )
        assert [call.outcome for call in result.tool_calls] == ["ok", "error", "error"]

    async def test_on_the_bytes_of_a_block(self, make: Make) -> None:
        async def echo(text: str) -> str:
            return text

        executor = await make(echo, tool_limits=ToolLimits(bytes_in="25k"))
        result = await run(executor, "for _ in range(3): echo('x' * 10000)")
        assert result.error is not None
        assert (result.error.type, len(result.tool_calls)) == ("ToolError", 2)
        executor = await make(echo, tool_limits=ToolLimits(bytes_out="25k"))
        result = await run(executor, "for _ in range(3): echo('x' * 10000)")
        assert result.error is not None
        assert result.error.message == "the results that one block gets may have 25k; this one has no room"
        assert [call.outcome for call in result.tool_calls] == ["ok", "ok", "error"]

    async def test_on_the_time_of_a_call(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add, tool_limits=ToolLimits(seconds=0.2))
        result = await run(executor, "try: endless()\nexcept TimeoutError as e: print(e)\nprint(add(1))")
        assert told(result) == ("ok", 0, "the host tool endless did not answer within 0.2 s\n2\n")
        assert in_short(result)[0] == ("endless", {}, "timeout", "TimeoutError")
        assert endless.ended == ["cancelled"]

    async def test_on_the_time_hold_for_a_tool_that_does_not_listen(
        self, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        done = asyncio.Event()

        async def deaf() -> str:
            while not done.is_set():
                try:
                    await done.wait()
                except asyncio.CancelledError:
                    continue
            return "late"

        executor = await make(deaf, tool_limits=ToolLimits(seconds=0.2))
        with caplog.at_level(logging.WARNING, "autogen_codeact"):
            result = await run(executor, "try: deaf()\nexcept TimeoutError: print('out of time')")
        assert told(result) == ("ok", 0, "out of time\n")
        assert caplog.messages[-1] == "the host tool deaf goes on though its block has ended"
        began = time.monotonic()
        await executor.stop()
        assert time.monotonic() - began < 10
        done.set()

    def test_that_can_not_be_right_are_refused(self) -> None:
        for wrong in (
            {"calls": 0},
            {"in_flight": 0},
            {"call_bytes": "5m"},
            {"answer_bytes": "8m"},
            {"seconds": 0},
            {"bytes_in": "much"},
            {"speed": 1},
        ):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                ToolLimits(**wrong)  # type: ignore[arg-type]


class TestApproval:
    async def test_is_asked_for_each_call_and_knows_what_it_is_about(self, make: Make) -> None:
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
        assert result.error is not None
        assert (result.error.type, result.error.message) == ("ToolRefused", "numbers above 1 are too large")
        assert [call.outcome for call in result.tool_calls] == ["ok", "refused", "refused", "refused"]
        request = asked[0]
        assert (request.name, request.arguments, request.signature) == (
            "add",
            {"a": 1, "b": 1},
            "(a: int, b: int = 1) -> int",
        )
        assert (request.description, request.language, request.code) == (
            "Add two numbers.",
            "python",
            block(code).code,
        )

    async def test_is_asked_for_calls_at_the_same_time(self, make: Make) -> None:
        barrier = asyncio.Barrier(4)

        async def approve(request: ToolApprovalRequest) -> ToolApproval:
            async with asyncio.timeout(10):
                await barrier.wait()
            return ToolApproval(request.arguments["a"] % 2 == 0, "odd")

        executor = await make(add, approve_tool=approve)
        code = """
            from concurrent.futures import ThreadPoolExecutor
            def attempt(n):
                try: return add(n)
                except PermissionError as error: return str(error)
            print(list(ThreadPoolExecutor(4).map(attempt, range(4))))
        """
        assert await out(executor, code) == "[1, 'odd', 3, 'odd']\n"

    async def test_that_fails_is_a_no(self, make: Make) -> None:
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
            "approve_tool gave back no ToolApproval but a bool",
            "approve_tool gave back no ToolApproval but a NoneType",
            "it was not approved",
            "it was not approved",
        ]
        assert called == []

    async def test_can_not_change_what_is_run(self, make: Make) -> None:
        async def approve(request: ToolApprovalRequest) -> ToolApproval:
            assert isinstance(request.arguments, dict)
            request.arguments["a"] = 100
            return ToolApproval(True)

        executor = await make(add, approve_tool=approve)
        result = await run(executor, "print(add(1))")
        assert (result.output, in_short(result)) == ("2\n", [("add", {"a": 1, "b": 1}, "ok", 2)])

    async def test_does_not_count_as_the_tools_time(self, make: Make) -> None:
        async def approve(request: ToolApprovalRequest) -> ToolApproval:
            await asyncio.sleep(0.4)
            return ToolApproval(True)

        executor = await make(add, approve_tool=approve, tool_limits=ToolLimits(seconds=0.2))
        assert await out(executor, "print(add(1))") == "2\n"


class TestTheEndOfABlock:
    async def test_by_its_deadline_cancels_its_calls(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add, timeout=1)
        result = await run(executor, "print(add(1))\nendless()")
        assert told(result) == ("timeout", 124, "2\n")
        assert in_short(result) == [("add", {"a": 1, "b": 1}, "ok", 2), ("endless", {}, "cancelled", "CancelledError")]
        assert endless.ended == ["cancelled"]
        assert await out(executor, "print(add(2))") == "3\n"

    async def test_by_a_crash_cancels_its_calls(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = """
            import os, threading, time
            add(1)
            threading.Thread(target=endless, daemon=True).start()
            time.sleep(0.3)
            os.kill(os.getpid(), 11)
        """
        result = await run(executor, code)
        assert (result.outcome, result.error.type if result.error else "") == ("crashed", "SIGSEGV")
        assert [call.outcome for call in result.tool_calls] == ["ok", "cancelled"]
        assert endless.ended == ["cancelled"]
        assert await out(executor, "print(add(2))") == "3\n"

    async def test_by_cancellation_cancels_its_calls(self, make: Make) -> None:
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

    async def test_fails_the_calls_of_threads_that_outlive_it(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = """
            import threading
            said = []
            def work():
                try: endless()
                except RuntimeError as error: said.append(str(error))
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            import time; time.sleep(0.3)
        """
        result = await run(executor, code)
        assert (result.outcome, in_short(result)) == ("ok", [("endless", {}, "cancelled", "CancelledError")])
        assert endless.ended == ["cancelled"]
        if executor.mode == "session":
            output = await out(executor, "thread.join(5); print(said)")
            assert output == "['this call to a host tool has no answer, because the block that made it has ended']\n"

    async def test_leaves_nothing_of_a_tool_that_takes_its_time_to_clean_up(self, make: Make) -> None:
        cleaned = []

        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.2)
                cleaned.append(True)

        executor = await make(slow, timeout=0.5)
        assert (await run(executor, "slow()")).outcome == "timeout"
        assert cleaned == [True]

    async def test_ends_a_tools_token_too(self, make: Make) -> None:
        tokens: list[CancellationToken] = []

        class Careless(Tool):
            async def run(self, arguments: Mapping[str, Any], cancellation_token: CancellationToken) -> ToolAnswer:
                tokens.append(cancellation_token)
                await asyncio.Event().wait()
                raise AssertionError

        executor = await make(Careless(add), timeout=0.5)
        assert (await run(executor, "add(1)")).outcome == "timeout"
        assert [token.is_cancelled() for token in tokens] == [True]

    async def test_by_the_death_of_the_sandbox_keeps_the_calls(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = CodeBlock(code="print(add(1))\nendless()", language="python")
        first = CodeBlock(code="add(10)", language="python")
        running = asyncio.ensure_future(executor.execute_code_blocks([first, code], CancellationToken()))
        await asyncio.wait_for(endless.begun.wait(), 10)
        sandbox = executor._sandbox
        assert sandbox is not None
        await asyncio.to_thread(sandbox._launcher.kill)
        with pytest.raises(SandboxDied) as raised:
            await running
        assert [(call.name, call.outcome) for call in raised.value.tool_calls] == [
            ("add", "ok"),
            ("add", "ok"),
            ("endless", "cancelled"),
        ]


class TestCallingOff:
    async def test_from_asyncio_cancels_the_tool(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = """
            import asyncio
            async def main():
                try:
                    await asyncio.wait_for(endless.aio(), 0.2)
                except asyncio.TimeoutError:
                    print("given up")
                for _ in range(100):
                    if await add.aio(1) == 2 and await add.aio(2) == 3:
                        await asyncio.sleep(0.01)
            asyncio.run(main())
        """
        result = await run(executor, code)
        assert told(result) == ("ok", 0, "given up\n")
        assert in_short(result)[0] == ("endless", {}, "cancelled", "CancelledError")
        assert endless.ended == ["cancelled"]

    async def test_by_a_signal_cancels_the_tool(self, make: Make) -> None:
        endless = Endless()
        executor = await make(endless.endless, add)
        code = """
            import signal
            def ring(*_):
                raise InterruptedError(f"rang, and {add(1)} is known")
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                endless()
            except InterruptedError as error:
                print(error)
            print(add(2))
        """
        result = await run(executor, code)
        assert told(result) == ("ok", 0, "rang, and 2 is known\n3\n")
        assert [(call.name, call.outcome) for call in result.tool_calls] == [
            ("endless", "cancelled"),
            ("add", "ok"),
            ("add", "ok"),
        ]
        assert endless.ended == ["cancelled"]


class TestOtherProcesses:
    async def test_that_the_block_forks_can_not_call(self, make: Make) -> None:
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

    async def test_of_a_shell_know_no_tools(self, make: Make) -> None:
        executor = await make(add)
        result = await run(executor, "ls /proc/$$/fd | wc -w; add 1 2 2>&1 | grep -c 'not found'", "sh")
        assert result.tool_calls == ()
        assert result.output.splitlines()[1] == "1"


class TestMisuse:
    """The code has the socket, so it can do with it what it likes; only its own calls suffer."""

    @pytest.mark.parametrize(
        "harm",
        [
            "os.close(fd)",
            "os.close(fd); keep = open('/dev/null', 'w'); os.dup2(keep.fileno(), fd)",
            "os.write(fd, b'garbage' * 100)",
            "os.write(fd, b'T\\0\\0\\0\\1\\xff\\xff\\xff\\xff')",
            "os.write(fd, b'X\\0\\0\\0\\1\\0\\0\\0\\0')",
            "os.write(fd, b'T\\0\\0\\1\\0\\0\\0\\0\\0' * 2)",
            "socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)",
            "calls._Running.client._torn_reading = True",
        ],
    )
    async def test_of_the_socket_ends_the_calls_and_nothing_else(self, make: Make, harm: str) -> None:
        executor = await make(add)
        code = f"""
            import os, socket, sys, time
            calls = sys.modules["codeact_runner.tools"]
            fd = calls._Running.client._fd
            print(add(1))
            {harm}
            time.sleep(0.2)
            for _ in range(2):
                try:
                    add(2)
                except (RuntimeError, ValueError) as error:
                    print(type(error).__name__)
            print("goes on")
        """
        result = await run(executor, code)
        assert (result.outcome, result.output.splitlines()[0], result.output.splitlines()[-1]) == ("ok", "2", "goes on")
        assert set(result.output.splitlines()[1:-1]) <= {"RuntimeError", "ToolError"}
        assert len(result.output.splitlines()) == 4
        assert await out(executor, "print(add(3))") == "4\n"

    async def test_of_a_call_that_is_answered_twice_or_by_nobody(self, make: Make) -> None:
        executor = await make(add)
        code = """
            import os, struct, sys
            client = sys.modules["codeact_runner.tools"]._Running.client
            for number in (7, 8, 9):
                os.write(client._fd, struct.pack("!cII", b"U", number, 0))
            body = b'{"name":"add","arguments":{"a":5}}'
            os.write(client._fd, struct.pack("!cII", b"T", 4000000000, len(body)) + body)
            print(add(1), add(2))
        """
        result = await run(executor, code)
        assert told(result) == ("ok", 0, "2 3\n")
        assert sorted(call.arguments["a"] for call in result.tool_calls) == [1, 2, 5]


class TestSessions:
    async def test_go_back_to_a_checkpoint_and_call_on(self, make: Make) -> None:
        executor = await make(add, timeout=1)
        if executor.mode != "session":
            pytest.skip("there are no checkpoints in process mode")
        await out(executor, "x = add(1)\nimport os")
        for code, outcome in (("add(5); x = 0\nwhile True: pass", "timeout"), ("x = add(0); os._exit(1)", "crashed")):
            result = await run(executor, code)
            assert (result.outcome, result.state, len(result.tool_calls)) == (outcome, "restored", 1)
            assert await out(executor, "print(add(x))") == "3\n"
        await executor.checkpoint()
        await out(executor, "x = 7; add = 3")
        await executor.rollback()
        assert await out(executor, "print(add(x))") == "3\n"

    async def test_that_are_lost_begin_with_the_tools(self, make: Make) -> None:
        executor = await make(add, checkpoint=False)
        if executor.mode != "session":
            pytest.skip("there is no session in process mode")
        result = await run(executor, "add = 3; import os; os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert await out(executor, "print(add(1))") == "2\n"


class TestTheResult:
    async def test_has_the_pictures_of_a_tool(self, make: Make) -> None:
        picture = Image(Pillow.new("RGB", (2, 2)))
        executor = await make(Tool(add, images=(picture,)))
        result = await run(executor, "add(1)")
        assert [call.images for call in result.tool_calls] == [(picture,)]

    async def test_of_a_tool_that_raises_what_would_end_the_host(self, make: Make) -> None:
        kinds = {
            "exit": SystemExit(3),
            "interrupt": KeyboardInterrupt(),
            "generator": GeneratorExit(),
            "cancel": asyncio.CancelledError(),
        }

        async def fail(kind: str) -> None:
            raise kinds[kind]

        executor = await make(fail)
        code = f"""
            for kind in {list(kinds)}:
                try: fail(kind)
                except Exception as error: print(type(error).__name__, error)
        """
        result = await run(executor, code)
        assert result.output.splitlines() == [
            "ToolError SystemExit: 3",
            "ToolError KeyboardInterrupt",
            "ToolError GeneratorExit",
            "ToolError CancelledError",
        ]
        assert {call.outcome for call in result.tool_calls} == {"error"}
