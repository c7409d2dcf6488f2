"""LlamaIndex: the function with which a `CodeActAgent` runs code in a sandbox. It needs nothing of LlamaIndex itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.answers import answer_of


def code_execute_fn(sandbox: AsyncSandbox) -> Callable[[str], Awaitable[str]]:
    """Return the function for `CodeActAgent(code_execute_fn=…)`.

    Args:
        sandbox: Runs the code; it starts with the first call, and who made it stops it. Functions that the code may call are
            its `tools=`; give them to the agent, too, so that they are described to the model.
    """

    async def execute(code: str) -> str:
        """Run Python code in a live interpreter: variables stay from call to call.

        Args:
            code: The code.
        """
        return answer_of(await sandbox.run(code))[0]

    return execute
