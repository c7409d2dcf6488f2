"""AutoGen's form of a result."""

from __future__ import annotations

from dataclasses import dataclass

from autogen_ext.code_executors._common import CommandLineCodeResult  # exported nowhere else

from autogen_codeact.sandbox.result import Result


@dataclass
class ExecutionResult(Result, CommandLineCodeResult):
    """Result of running code blocks: AutoGen's `CommandLineCodeResult` with the fields of `Result`."""


def as_execution_result(result: Result) -> ExecutionResult:
    """Return a sandbox's result as the type that AutoGen expects."""
    return ExecutionResult(**vars(result))
