"""Google ADK: a code executor that runs an agent's code in a sandbox for each session."""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from pydantic import Field, PrivateAttr

from codeact_sandbox import Sandbox
from codeact_sandbox.integrations.answers import answer_of

# Sandboxes that are alive; the one that was not used for the longest time is stopped for another one.
MAX_SANDBOXES = 16


class CodeactCodeExecutor(BaseCodeExecutor):
    """Runs code in a live interpreter: `LlmAgent(code_executor=CodeactCodeExecutor(options={"memory": "1g"}))`.

    Each session of ADK has a sandbox of its own, whose variables and files stay. `close()` stops them.

    Args:
        options: Arguments of `Sandbox`, such as `tools`. Default: none.
    """

    stateful: bool = True
    options: dict[str, Any] = Field(default_factory=dict, exclude=True)
    _sandboxes: OrderedDict[str | None, Sandbox] = PrivateAttr(default_factory=OrderedDict)

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        """Run code; figures are output files.

        Args:
            invocation_context: Not used.
            code_execution_input: The code, its session, and files for the workspace.
        """
        box = self._sandbox(code_execution_input.execution_id)
        for file in code_execution_input.input_files:
            box.write(file.name, base64.b64decode(file.content))
        result = box.run(code_execution_input.code, timeout=self.timeout_seconds)
        text, images = answer_of(result)
        files = [
            File(f"figure-{number}.{kind.partition('/')[2]}", base64.b64encode(data), kind)
            for number, (data, kind) in enumerate(images, start=1)
        ]
        failed = result.exit_code != 0
        return CodeExecutionResult(
            stdout="" if failed else text,
            stderr=text if failed else "",
            output_files=files,
            exit_code=result.exit_code,
        )

    def _sandbox(self, session: str | None) -> Sandbox:
        box = self._sandboxes.pop(session, None) or Sandbox(**self.options)
        self._sandboxes[session] = box
        while len(self._sandboxes) > MAX_SANDBOXES:
            self._sandboxes.popitem(last=False)[1].stop()
        return box

    def close(self) -> None:
        while self._sandboxes:
            self._sandboxes.popitem()[1].stop()
