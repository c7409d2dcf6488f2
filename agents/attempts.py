"""Several attempts at one step: answers of the model at once, their code in branches in turn, and one of them is kept."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import CreateResult, RequestUsage, UserMessage

from autogen_codeact.agents.branch_run import StepBranch
from autogen_codeact.agents.code_runner import CodeRunner
from autogen_codeact.agents.conversation import Conversation, pass_on_nothing
from autogen_codeact.agents.model import sum_usage
from autogen_codeact.agents.step_record import InBranch, RunEnded
from autogen_codeact.agents.text import shorten
from autogen_codeact.executors.capabilities import capabilities_of
from codeact_sandbox import backend_selection as select

MAX_ATTEMPTS = 16
MAX_SHOWN_CHARS = 4_000
"""Of the code and of the output of each attempt, when a model chooses."""
QUESTION = (
    "Here are {count} attempts at the next step, each run from the same state. Which one is best? Answer with its number and "
    "nothing else.\n\n{attempts}"
)
_NUMBER = re.compile(r"\d{1,3}")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a step.

    Args:
        number: From 1, in the order in which the answers came.
        text: The model's message.
        result: The result of its code in a branch; None if it has no code to run.
        succeeded: Whether its code has ended without an error, or it has none and can be the answer.
    """

    number: int
    text: str
    result: CodeResult | None
    succeeded: bool


Chosen = Attempt | int | None
Choose = Literal["model"] | Callable[[Sequence[Attempt]], Chosen | Awaitable[Chosen]]
"""What chooses among attempts: the model, or a function that gets all and returns one, its number, or None."""
Find = Callable[[CreateResult], tuple[list[CodeBlock], bool]]
"""Returns the code of an answer that runs, and whether an answer without code can be the end."""


class Attempts:
    """Makes the attempts of an agent.

    Args:
        count: How many there are at each step.
        check: Python that must succeed after the code of an attempt; None for no check.
        choose: What chooses; None for the first that succeeds.
    """

    def __init__(self, count: int, check: str | None, choose: Choose | None) -> None:
        self.count = count
        self.check = check
        self.choose = choose

    def check_arguments(self, executor: CodeExecutor) -> None:
        """Check an agent's arguments."""
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 1 <= self.count <= MAX_ATTEMPTS:
            raise ValueError(f"attempts must be from 1 to {MAX_ATTEMPTS}, not {self.count!r:.50}.")
        if not (self.choose is None or self.choose == "model" or callable(self.choose)):
            raise TypeError(f"choose must be 'model' or a function of the attempts, not {self.choose!r:.50}.")
        if self.check is not None and not isinstance(self.check, str):
            raise TypeError(f"check must be Python code as text, not a {type(self.check).__name__}.")
        if (self.choose is not None or self.check is not None) and self.count == 1:
            raise ValueError("check and choose need attempts: give attempts= a number above 1.")
        if self.count == 1:
            return
        session: Any = capabilities_of(executor).session
        if session is None:
            raise ValueError("attempts need a session that can be branched: use an executor of autogen_codeact.")
        if select.external_effects(session.options) is not None:
            raise ValueError(
                "attempts can't be undone in this sandbox, whose code can have effects outside it: leave out its network, "
                "bind_dir and writable volumes."
            )

    def config(self) -> Literal["model"] | None:
        """Return what chooses, as configuration."""
        if self.choose is None or self.choose == "model":
            return self.choose
        raise ValueError("choose is a function, which has no configuration: dump the agent without it.")

    async def take(
        self, conversation: Conversation, runner: CodeRunner, find: Find, token: CancellationToken
    ) -> tuple[CreateResult, RunEnded | None, int]:
        """Make the attempts at a step.

        Returns:
            The answer to go on with, with the tokens of all; how its code has ended, or None if that is still to run; its number.
        """
        answers = await conversation.ask_for_several(self.count, token)
        usage = sum_usage(*(answer.usage for answer in answers))
        distinct: dict[str, CreateResult] = {}
        for answer in answers:
            distinct.setdefault(str(answer.content), answer)
        answers = list(distinct.values())
        branch = StepBranch()
        try:
            tried, ends = await self._try(answers, runner, find, token, branch)
            chosen, spent = await self._chosen(tried, conversation, runner, token)
            generated = answers[chosen - 1]
            kept = ends.get(chosen)
            if kept is not None and self.choose is not None:
                blocks = find(generated)[0]
                kept = await runner.keep_attempt(blocks, kept, branch, chosen) if branch.holds(chosen) else None
        finally:
            await branch.close()
        return generated.model_copy(update={"usage": sum_usage(usage, spent)}), kept, chosen

    async def _try(
        self,
        answers: Sequence[CreateResult],
        runner: CodeRunner,
        find: Find,
        token: CancellationToken,
        branch: StepBranch,
    ) -> tuple[list[Attempt], dict[int, RunEnded]]:
        """Run the code of the answers; return the attempts, and how the code of those that succeeded has ended."""
        tried: list[Attempt] = []
        ends: dict[int, RunEnded] = {}
        check = CodeBlock(code=self.check, language="python") if self.check is not None else None
        keeps = self.choose is None
        for number, answer in enumerate(answers, 1):
            blocks, can_end = find(answer)
            ended = None
            if blocks:
                attempt = InBranch(number, keeps, check)
                ended = await runner.run(blocks, token, attempt=attempt, branch=branch)
            result = ended.result if ended is not None else None
            succeeded = can_end if result is None else result.exit_code == 0
            tried.append(Attempt(number, str(answer.content), result, succeeded))
            if ended is not None and succeeded:
                ends[number] = ended
            if keeps and succeeded:
                break
            if ended is not None and ended.error is not None:
                return [], {}  # the sandbox broke: nothing is as it was before the step
        return tried, ends

    async def _chosen(
        self, tried: Sequence[Attempt], conversation: Conversation, runner: CodeRunner, token: CancellationToken
    ) -> tuple[int, RequestUsage]:
        """Return the number of the attempt to go on with, the first if none is any good, and what it took to choose."""
        good = [each.number for each in tried if each.succeeded]
        best, choose = good[0] if good else 1, self.choose
        if not tried or choose is None or (choose == "model" and len(good) < 2):
            return best, RequestUsage(0, 0)
        if choose == "model":
            return await _ask_model(conversation, tried, token, best)

        async def ask() -> int:
            is_async = inspect.iscoroutinefunction(choose)
            found: Any = choose(tried) if is_async else await asyncio.to_thread(choose, tried)
            found = await found if inspect.isawaitable(found) else found
            number = found.number if isinstance(found, Attempt) else 1 if found is None else found
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(tried):
                raise ValueError(f"choose must return an attempt, its number or None, not {found!r:.100}.")
            return int(number)

        number = await (ask() if runner.steps is None else runner.steps.value("choice", ask, int))
        return number, RequestUsage(0, 0)


async def _ask_model(
    conversation: Conversation, tried: Sequence[Attempt], token: CancellationToken, default: int
) -> tuple[int, RequestUsage]:
    shown = [
        f"Attempt {each.number}:\n{shorten(each.text, MAX_SHOWN_CHARS)}\n"
        f"Output:\n{shorten(each.result.output, MAX_SHOWN_CHARS) if each.result is not None else '(no code)'}"
        for each in tried
    ]
    text = QUESTION.format(count=len(tried), attempts="\n\n".join(shown))
    answer = await conversation.ask(token, pass_on_nothing, None, UserMessage(content=text, source="user"))
    numbers = [int(each) for each in _NUMBER.findall(str(answer.content))]
    # A model that gives no number has no preference.
    return next((number for number in numbers if 1 <= number <= len(tried)), default), answer.usage
