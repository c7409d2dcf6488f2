"""AutoGen's executor on a bubblewrap sandbox."""

from __future__ import annotations

from typing import Unpack

from autogen_core import Component

from autogen_codeact.executors.arguments import (
    BubblewrapExecutorKeywords,
    ExecutorArguments,
    ExecutorConfig,
    ExecutorOptions,
    explained,
    options_of,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.option_parsing import parse_options
from codeact_sandbox.types.options import BubblewrapOptions


class BubblewrapExecutorOptions(ExecutorOptions, BubblewrapOptions):
    """Options of `BubblewrapCommandLineCodeExecutor`: those of its sandbox, and AutoGen's."""


class BubblewrapArguments(ExecutorArguments, BubblewrapExecutorOptions):
    """Arguments of `BubblewrapCommandLineCodeExecutor`."""


class BubblewrapCommandLineCodeExecutorConfig(ExecutorConfig, BubblewrapExecutorOptions):
    """Configuration of `BubblewrapCommandLineCodeExecutor`: the options of its sandbox, and its tools as components.

    `functions` are kept as the source of their module (`functions_source`).
    """


class BubblewrapCommandLineCodeExecutor(SandboxCodeExecutor, Component[BubblewrapCommandLineCodeExecutorConfig]):
    """Runs code blocks in bubblewrap namespaces, with the programs of this machine and none of its data.

    No network, no capabilities, no new privileges, an unprivileged user, system folders read-only, no home directory,
    nothing of the host's environment. Memory and processor time are bounded by a control group if the kernel lets this
    process make one; elsewhere only the address space of each process is. Linux only.
    `help(BubblewrapCommandLineCodeExecutor.__init__)` explains the arguments.

    Raises:
        TypeError: An argument is unknown or has a wrong type.
        ValueError: An argument is invalid; the message says which.
    """

    component_config_schema = BubblewrapCommandLineCodeExecutorConfig
    component_provider_override = "autogen_codeact.executors.BubblewrapCommandLineCodeExecutor"

    @explained(BubblewrapArguments)
    def __init__(self, **options: Unpack[BubblewrapExecutorKeywords]) -> None:
        arguments = parse_options(BubblewrapArguments, options, type(self))
        super().__init__(options_of(arguments, BubblewrapExecutorOptions), arguments)
