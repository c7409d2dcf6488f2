"""Asking whether code may run, in the terminal and on the page of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autogen_codeact.agents import ApprovalRequest, ApprovalResponse
from autogen_codeact.viewer.control import ApprovalQuestion, RunControl
from codeact_sandbox.tools.question_text import shown_whole
from codeact_sandbox.tools.terminal import Question, ask

YES, ALL, NO = ("y", "yes"), ("a", "all"), ("n", "no", "")
PROMPT = "Run this code? [y]es, [a]ll of this run, or why not (Enter: no): "
_MAX_REASON = 1_000


class CodeApproval:
    """Asks whether code may run, unless the user has allowed all code; pass it as `approval_func`.

    Args:
        ask: Asks in the terminal about code, and returns the answer.
    """

    control: RunControl | None = None  # the buttons of the run's page, which can answer, too

    def __init__(self, ask: Callable[[str], Awaitable[str]]) -> None:
        self._ask = ask
        self._all = False

    async def __call__(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask in the terminal and on the page, and return the first answer; the other question is withdrawn."""
        if self._all:
            return ApprovalResponse(approved=True, reason="all code was approved")
        try:
            shown_whole(request.code)
        except ValueError as error:
            return ApprovalResponse(approved=False, reason=f"the code can't be approved: {error}")
        waiting = {asyncio.ensure_future(self._in_terminal(request.code))}
        if self.control is not None:
            waiting.add(asyncio.ensure_future(_on_page(self.control, request.code)))
        refused = ApprovalResponse(approved=False, reason="there is no way to ask")
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    try:
                        return each.result()
                    except EOFError as error:
                        refused = ApprovalResponse(approved=False, reason=str(error) or refused.reason)
            return refused
        finally:
            for each in waiting:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _in_terminal(self, code: str) -> ApprovalResponse:
        answer = (await self._ask(code)).strip()
        word = answer.lower()
        self._all = word in ALL
        if word in YES + ALL:
            return ApprovalResponse(approved=True, reason="approved")
        why = "" if word in NO else f": {answer[:_MAX_REASON]}"
        return ApprovalResponse(approved=False, reason=f"the person said no{why}")


async def _on_page(control: RunControl, code: str) -> ApprovalResponse:
    approved = await control.ask(ApprovalQuestion("code", code))
    return ApprovalResponse(approved=approved, reason="" if approved else "the person said no on the run's page")


async def ask_about(code: str) -> str:
    """Show code in the terminal, and return the answer to the question whether it may run."""
    text = f"The model wants to run this code:\n{shown_whole(code)}\n"
    return await ask(Question("the code", text, PROMPT, YES + ALL))
