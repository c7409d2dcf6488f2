"""A recorder is awaited before a tool runs and before the code sees its result; observers watch everything."""

from typing import Any

import pytest

from codeact_sandbox import AsyncSandbox, ToolApproval, ToolApprovalRequest

events: list[tuple[Any, ...]] = []


def add(a: int, b: int) -> int:
    """Add two numbers."""
    events.append(("add runs", a, b))
    return a + b


class Recorder:
    async def call_starting(self, intent: Any) -> None:
        events.append(("recorded intent", intent.number, intent.name, intent.arguments, intent.block.block))

    async def call_finished(self, finished: Any) -> None:
        events.append(("recorded result", finished.call.result))


class Observer:
    def sandbox_started(self, event: Any) -> None:
        events.append(("started", event.backend, event.duration_s > 0))

    def sandbox_stopped(self, event: Any) -> None:
        events.append(("stopped", event.error))

    def block_started(self, event: Any) -> None:
        events.append(("block", event.block, event.language, event.code))

    def block_finished(self, event: Any) -> None:
        events.append(
            ("block finished", event.started.block, None if event.result is None else event.result.outcome, event.error)
        )

    def call_started(self, event: Any) -> None:
        events.append(("call", event.name))

    def call_finished(self, event: Any) -> None:
        events.append(("call finished", event.call.outcome))
        raise RuntimeError("an observer that fails disturbs nothing")


async def approve(request: ToolApprovalRequest) -> ToolApproval:
    events.append(("approved", request.name))
    return ToolApproval(True)


@pytest.mark.usefixtures("bubblewrap")
async def test_events_come_in_this_order() -> None:
    events.clear()
    watching = {"recorder": Recorder(), "observers": [Observer()]}
    box = AsyncSandbox("bubblewrap", tools=[add], approve_tool=approve, **watching)
    async with box:
        assert (await box.run("x = add(40, 2)\nx")).output == "42\n"
        await box.run("1 / 0")
    name = box.name
    assert name.startswith("codeact-")
    assert events == [
        ("started", "bubblewrap", True),
        ("block", 1, "python", "x = add(40, 2)\nx"),
        ("approved", "add"),
        ("recorded intent", 1, "add", {"a": 40, "b": 2}, 1),
        ("call", "add"),
        ("add runs", 40, 2),
        ("recorded result", 42),
        ("call finished", "ok"),
        ("block finished", 1, "ok", None),
        ("block", 2, "python", "1 / 0"),
        ("block finished", 2, "error", None),
        ("stopped", None),
    ]
