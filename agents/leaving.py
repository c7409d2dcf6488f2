"""Ending an agent's turn when its stream is closed early."""

from __future__ import annotations

import functools
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken

if TYPE_CHECKING:
    from autogen_agentchat.agents import BaseChatAgent as _Agent
else:
    _Agent = object

A = TypeVar("A", bound="EndsItsTurn")
T = TypeVar("T")
P = ParamSpec("P")
Turn = Callable[Concatenate[A, P], AsyncGenerator[T, None]]


def ends_with_its_reader(method: Turn[A, P, T]) -> Turn[A, P, T]:
    """Decorate `on_messages_stream` so that the agent's `run_stream` can close the last turn that it has begun."""

    def begin(self: A, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        turn = method(self, *args, **kwargs)
        self._turn = weakref.ref(turn)
        return turn

    return cast(Turn[A, P, T], functools.update_wrapper(begin, method))


class EndsItsTurn(_Agent):
    """An agent whose turn ends when its stream is closed."""

    _turn: weakref.ref[AsyncGenerator[Any, None]] | None = None

    async def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Run the agent and yield its messages, last the `TaskResult`. Closing the stream early kills the code that runs.

        Args:
            task: What to do. Default: continue the conversation.
            cancellation_token: Ends the run.
            output_task_messages: Whether the task is among the messages. Default: yes.
        """
        self._turn = None
        run = super().run_stream(
            task=task, cancellation_token=cancellation_token, output_task_messages=output_task_messages
        )
        async with aclosing(run):
            try:
                async for item in run:
                    yield item
            finally:
                # AutoGen's own stream does not close the turn; the garbage collector would do it later.
                if self._turn is not None and (turn := self._turn()) is not None:
                    await turn.aclose()
