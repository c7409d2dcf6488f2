"""AutoGen's form of a result."""

from __future__ import annotations

from dataclasses import dataclass

from autogen_ext.code_executors._common import CommandLineCodeResult  # exported nowhere else

from codeact_sandbox.types.result import Result


@dataclass(repr=False)
class ExecutionResult(Result, CommandLineCodeResult):
    """Result of running code blocks: AutoGen's `CommandLineCodeResult` with the fields of `Result`."""
