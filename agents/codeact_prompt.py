"""The prompts of a `CodeActAgent`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Literal

from pydantic import BaseModel

from autogen_codeact.agents.code_search import listed
from autogen_codeact.agents.tool_prompt import describe_functions, describe_tools
from codeact_sandbox.types.tool import HostToolProtocol

PromptStyle = Literal["markdown", "execute"]

TASK = "You solve the user's task by acting in code, step by step, until it is done."
HOW = {
    "markdown": """\
To act, write one fenced block of code labelled with its language, {languages}:
```python
print(6 * 7)
```
It is run as soon as your message ends, and you are shown what it printed. Several blocks are run in order, up to the first \
that fails. Blocks with another label or without one are not run.""",
    "execute": """\
To act, put code between tags:
<execute>
print(6 * 7)
</execute>
It is run as soon as your message ends, and you are shown what it printed. Code outside of these tags is not run.""",
}
RULES = """\
- All Python code runs in one live session: variables, functions and imports of earlier code are there in later code. \
Reuse what you have; don't write it again.
- You see what the code prints, and the value of a bare expression on its last line, and nothing else.
- End your message after the code and wait for its output. Never guess what an output would be.
- If code fails, find out why, and send what has to be done differently. What ran before the error stays done."""
ANSWER_IN_WORDS = (
    "When the task is done, give the answer in a message without code to run. If the answer itself is code that could run "
    "here, put it into a block labelled text."
)
ANSWER_BY_CALL = (
    "When the task is done, give the answer: either in a message without code to run, or by calling "
    "`final_answer(value)` in code, which ends there. If the answer itself is code that could run here, pass it to "
    "`final_answer` as a string."
)
TYPED = "The answer must fit this JSON schema; in a message without code, it is JSON and nothing else:\n{schema}"
HANDOFFS = (
    "These functions hand the task over to another agent, with a message to it. A call ends the code and your turn:"
)
SETUP = "This has been run in the session already:\n```python\n{setup}\n```"

EMPTY = "Your message was empty. Go on: act in code, or give the answer."
CUT_OFF_TEXT = "Your message was cut off at its maximum length. Send it again in a shorter form."
MISFIT = "That answer does not fit: {problem}. Give one JSON value that fits the schema and nothing else, or act in code first."
CLOSING = {
    "repeated_code": "You have sent the same code for a third time, so it was not run.",
    "max_steps": "That was the last of your {limit} steps.",
    "max_tokens": "You have used up the tokens that there are for this task.",
    "max_cost": "You have used up the money that there is for this task.",
    "max_seconds": "The time for this task is over; code that still ran has been stopped.",
}
CLOSE = (
    " No more code is run. Give the best answer that you can give now, from what you have seen; say what is missing."
)
NO_ANSWER = "There is no answer: {why}, and the model gave none when it was asked to close."
WHY = {
    "repeated_code": "the model sent the same code again and again",
    "max_steps": "the limit of {limit} steps was reached",
    "max_tokens": "the limit of {limit} tokens was reached",
    "max_cost": "the limit of {limit:g} for the cost was reached",
    "max_seconds": "the limit of {limit:g} seconds was reached",
}


def system_message(
    task: str,
    *,
    style: PromptStyle,
    languages: Collection[str] = ("python",),
    tools: Sequence[HostToolProtocol] = (),
    setup: str | None = None,
    output_type: type[BaseModel] | None = None,
    by_call: bool = True,
    environment: str | None = None,
    handoffs: Sequence[HostToolProtocol] = (),
) -> str:
    parts: list[str | None] = [
        task,
        HOW[style].format(languages=listed(languages)),
        RULES,
        environment,
        describe_tools(tools),
    ]
    if handoffs:
        parts.append(describe_functions(HANDOFFS, handoffs))
    if setup is not None:
        parts.append(SETUP.format(setup=setup.strip("\n")))
    parts.append(ANSWER_BY_CALL if by_call else ANSWER_IN_WORDS)
    if output_type is not None:
        parts.append(TYPED.format(schema=json.dumps(output_type.model_json_schema(), ensure_ascii=False)))
    return "\n\n".join(filter(None, parts))
