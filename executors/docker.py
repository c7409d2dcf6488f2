"""AutoGen's executor on a Docker sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Unpack

from autogen_core import Component

from autogen_codeact.executors.arguments import (
    DockerExecutorKeywords,
    ExecutorArguments,
    ExecutorConfig,
    ExecutorOptions,
    explained,
    options_of,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.languages import labels
from codeact_sandbox.types.option_parsing import parse_options
from codeact_sandbox.types.options import DEFAULT_IMAGE, DockerOptions, OrEmpty


class DockerExecutorOptions(ExecutorOptions, DockerOptions):
    """Options of `DockerCommandLineCodeExecutor`: those of its sandbox, and AutoGen's."""

    auto_remove: Annotated[bool, "Whether the container is removed when it ends."] = True
    stop_container: Annotated[
        bool,
        "Whether `stop` ends the container. If False it is kept for the next `start`, at the longest until this "
        "process ends.",
    ] = True
    extra_hosts: Annotated[Mapping[str, str] | None, OrEmpty, "Names for the container's /etc/hosts."] = None


class DockerArguments(ExecutorArguments, DockerExecutorOptions):
    """Arguments of `DockerCommandLineCodeExecutor`."""


class DockerCommandLineCodeExecutorConfig(ExecutorConfig, DockerExecutorOptions):
    """Configuration of `DockerCommandLineCodeExecutor`: the options of its sandbox, and its tools as components.

    `functions` are kept as the source of their module (`functions_source`) and the packages it needs.
    """


class DockerCommandLineCodeExecutor(SandboxCodeExecutor, Component[DockerCommandLineCodeExecutorConfig]):
    """Runs code blocks in a hardened Docker container, over one attached stream.

    By default: no network, no capabilities, no new privileges, an unprivileged user, a read-only root file system, bounded
    memory, processor time, processes and files. Use it with `async with`, or with `start` and `stop`; if it has not been
    started, the first block starts it. `help(DockerCommandLineCodeExecutor.__init__)` explains the arguments.

    Raises:
        TypeError: An argument is unknown or has a wrong type.
        ValueError: An argument is invalid; the message says which.
    """

    component_config_schema = DockerCommandLineCodeExecutorConfig
    component_provider_override = "autogen_codeact.executors.DockerCommandLineCodeExecutor"

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = sorted(labels())
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = (
        "The module `$module_name` holds the functions below. Import them from it, and don't define them again.\n\n$functions"
    )
    """A `string.Template` for programs that describe `functions=` to a model, as AutoGen's class has it."""

    @explained(DockerArguments, "image", "container_name")
    def __init__(
        self, image: str = DEFAULT_IMAGE, container_name: str | None = None, **options: Unpack[DockerExecutorKeywords]
    ) -> None:
        given = {"image": image, "container_name": container_name, **options}
        arguments = parse_options(DockerArguments, given, type(self))
        self._container_name = container_name
        super().__init__(options_of(arguments, DockerExecutorOptions), arguments)

    @property
    def container_name(self) -> str | None:
        """Name of the running container, or the one that was requested."""
        return self.name or self._container_name

    @property
    def bind_dir(self) -> Path:
        """The folder mounted at /workspace, or `work_dir`, which is synchronised with it."""
        folder = self.options.bind_dir
        return Path(folder) if folder is not None else self.work_dir
