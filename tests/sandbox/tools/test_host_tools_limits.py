"""What the host allows of the calls to its tools: limits, approval; and what becomes of odd results."""

from typing import Any

import pytest

from autogen_codeact.executors import ToolApproval, ToolApprovalRequest, ToolLimits
from codeact_sandbox.tools import broker
from tests.sandbox.sandboxes import block, out, run, short_result
from tests.sandbox.tools.host_tools import Endless, short_calls
from tests.sandbox.tools.test_host_tools import Make, add, make, on_one_kind

__all__ = ["make"]

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")


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
