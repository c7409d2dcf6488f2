"""smolagents: an executor that runs the code of a `CodeAgent` in a sandbox, while its tools run in this process."""

from __future__ import annotations

import base64
import inspect
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

import PIL.Image
from smolagents import serialization
from smolagents.local_python_executor import CodeOutput, PythonExecutor
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import AgentError

from codeact_sandbox import HostTool, Result, Sandbox
from codeact_sandbox.image_check import ImageRefused, check_image
from codeact_sandbox.tools.names import checked_name

FINAL_ANSWER = "final_answer"
# smolagents' own conversion of values to JSON, which the sandbox does not have.
_MODULE = base64.b64encode(zlib.compress(inspect.getsource(serialization).encode())).decode()
_LOAD = f"exec(__import__('zlib').decompress(__import__('base64').b64decode('{_MODULE}')), {{0}})"
_STUB = """
_smolagents = {{}}
{load}
def {name}(*args, **kwargs):
    values = _smolagents["SafeSerializer"]
    answer = _call({name!r}, {{"call": values.to_json_safe([list(args), kwargs])}})
    {end}
"""
_RETURN = "return values.from_json_safe(answer)"
# Ends the block as if it had come to its end; the code's `except Exception` does not catch it.
_END = "raise SystemExit"
_NUMBERS = re.compile(r"bool|(u?int|float|complex)\d+|[<>=|][biufc]\d+")


class CodeactExecutor(PythonExecutor):
    """Runs an agent's code in a sandbox: `CodeAgent(tools, model, executor=CodeactExecutor())`.

    Variables stay from step to step. Tools and managed agents are called from the sandbox and run here, in threads; their values
    may be JSON, images, arrays of numbers, sets, dates. Packages are those of the sandbox: `Sandbox(packages=[...])`.

    Args:
        sandbox: Runs the code. Default: a new `Sandbox()`. `cleanup()` stops it, which the end of `with CodeAgent(...)` calls.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self.sandbox = sandbox or Sandbox()
        self.tools: dict[str, Callable[..., Any]] = {}  # that the code can call, by name
        self.result: Result | None = None  # what the last code did: its displays, files and calls
        self.answers: list[Any] = []  # the final answers of the last code
        self._known: set[str] = set()
        self._figures: list[Any] = []
        self._logger = AgentLogger(level=LogLevel.OFF)

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Let the code call these functions, tools or managed agents, and no others.

        Raises:
            ValueError: A name is a keyword or builtin of Python.
        """
        self.sandbox.add_tools([_Tool(name, self) for name in tools if name not in self._known])
        self._known.update(tools)
        self.tools = dict(tools)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Set variables of the code, whose values have the types of those of tools.

        Raises:
            smolagents.serialization.SerializationError: A value has another type.
        """
        if variables:
            values = serialization.SafeSerializer.to_json_safe(dict(variables))
            load = _LOAD.format("_values := {}")
            self(f"{load}\nglobals().update(_values['SafeSerializer'].from_json_safe({values!r}))\ndel _values")

    def __call__(self, code_action: str) -> CodeOutput:
        """Run code.

        Returns:
            Its output, and the final answer or else the value of its last expression.

        Raises:
            AgentError: The code failed; the message has its output and the traceback.
            SandboxError: Something around the code broke.
        """
        self.answers.clear()
        result = self.result = self.sandbox.run(code_action)
        self._figures = [display.image[0] for display in result.displays if display.image is not None]
        logs = "\n".join([result.output.rstrip("\n"), *result.notes]).strip("\n")
        if self.answers:
            return CodeOutput(self.answers[-1], logs, True)
        if result.exit_code != 0:
            raise AgentError(logs or f"The code failed: {result.outcome}.", self._logger)
        return CodeOutput(result.value_repr if result.value is None else result.value, logs, False)

    def show_figures(self, step: Any, agent: Any = None) -> None:
        """Let the model see the figures of each step: `CodeAgent(..., step_callbacks=[executor.show_figures])`."""
        figures, self._figures = self._figures, []
        for data in figures:
            with suppress(ImageRefused):  # the output has a line about it
                image = PIL.Image.open(BytesIO(check_image(data)[0]))
                step.observations_images = [*(step.observations_images or []), image]

    def cleanup(self) -> None:
        self.sandbox.stop()


class _Tool(HostTool):
    """A tool of smolagents as a host tool; its values travel as smolagents writes them."""

    def __init__(self, name: str, executor: CodeactExecutor) -> None:
        def run(call: list[Any]) -> Any:
            _check(call)
            args, kwargs = serialization.SafeSerializer.from_json_safe(call)
            answer = executor.tools[name](*args, **kwargs)
            if name != FINAL_ANSWER:
                return serialization.SafeSerializer.to_json_safe(answer)
            executor.answers.append(answer)
            return None

        run.__name__ = checked_name(name)
        super().__init__(run)
        self.source = _STUB.format(  # type: ignore[assignment]  # Python instead of data
            load=_LOAD.format("_smolagents"), name=name, end=_END if name == FINAL_ANSWER else _RETURN
        )


def _check(value: Any) -> None:
    """Refuse what would make smolagents and its libraries do more than read numbers and pixels: the sandbox has sent it."""
    if isinstance(value, dict):
        if value.get("__type__") == "PIL.Image":
            check_image(base64.b64decode(value["data"]))
        elif value.get("__type__") == "ndarray" and not _NUMBERS.fullmatch(str(value["dtype"])):
            raise TypeError("only arrays of numbers can be passed: convert it to a list")
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check(each)
