"""Arguments of the executors: the options of their sandbox, and what AutoGen adds."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields
from typing import Annotated, ClassVar, TypedDict, TypeVar

from autogen_core import ComponentModel
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

from autogen_codeact.executors.functions_module import CodeFunction
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox.session.sandbox_pool import SandboxPool
from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.types.option_types import BubblewrapKeywords, DockerKeywords, SandboxKeywords
from codeact_sandbox.types.options import AutoGenOptions, SandboxOptions

M = TypeVar("M", bound=BaseModel)
F = TypeVar("F", bound=Callable[..., None])
# Not SkipValidation, which makes the schemas of all these types at the import.
_UNCHECKED = GetPydanticSchema(lambda _source, _handler: core_schema.any_schema())


def check_module_name(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"functions_module must be an identifier such as 'functions', not {name!r}.")
    return name


class ExecutorOptions(SandboxOptions):
    """Options of every executor: those of its sandbox, and AutoGen's."""

    per_run: ClassVar[Set[str]] = SandboxOptions.per_run | {each.name for each in fields(AutoGenOptions)}

    functions_source: Annotated[str | None, "Source of a Python module that the code can import."] = None
    functions_packages: Annotated[Sequence[str], "Python packages that this module needs."] = ()
    functions_module: Annotated[str, AfterValidator(check_module_name), "Name of this module."] = "functions"
    init_command: Annotated[
        str | None, "Shell command that runs once when the sandbox has started.", Field(repr=False)
    ] = None
    delete_tmp_files: Annotated[bool, "Whether the code of blocks without a name is not kept in `work_dir`."] = False

    @property
    def autogen(self) -> AutoGenOptions:
        """What only AutoGen's executors have."""
        own = {each.name for each in fields(AutoGenOptions)} & type(self).model_fields.keys()
        return AutoGenOptions(**{name: getattr(self, name) for name in own})


class ExecutorArguments(BaseModel):
    """Arguments of every executor that a config can't hold as they are; their users check them."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    functions: Annotated[Sequence[CodeFunction], _UNCHECKED] = Field(
        default=(),
        description="Functions whose source is put into a module for the code, with the packages that they need.",
    )
    tools: Annotated[Sequence[ToolLike], _UNCHECKED] = Field(
        default=(),
        description="Functions of this process that the code can call: typed functions, AutoGen tools, workbenches "
        "(docs/tools.md).",
    )
    approve_tool: Annotated[ApproveTool | None, _UNCHECKED] = Field(
        default=None,
        description="Called before each call to a tool: a function or a policy such as `AskPerson()`. The call is made only if "
        "it approves.",
    )
    progress: Annotated[Callable[[str], None] | None, _UNCHECKED] = Field(
        default=None,
        description="Called with a line for each step that takes long, such as a pull. By default it goes to standard error.",
    )
    pool: Annotated[SandboxPool | None, _UNCHECKED] = Field(
        default=None,
        description="A pool with the same options: the start takes one of its sandboxes. The config does not contain it.",
    )


class ToolKeywords(TypedDict, total=False):
    """The fields of `ExecutorArguments` but `pool`, and of `ExecutorOptions` beside those of a sandbox."""

    functions_source: str | None
    functions_packages: Sequence[str]
    functions_module: str
    init_command: str | None
    delete_tmp_files: bool
    functions: Sequence[CodeFunction]
    tools: Sequence[ToolLike]
    approve_tool: ApproveTool | None
    progress: Callable[[str], None] | None


class ArgumentKeywords(ToolKeywords, total=False):
    """The fields of `ExecutorArguments`."""

    pool: SandboxPool | None


class ContainerEndKeywords(TypedDict, total=False):
    """The fields of `DockerExecutorOptions` beside those of a sandbox and of `ExecutorOptions`."""

    auto_remove: bool
    stop_container: bool
    extra_hosts: Mapping[str, str] | None


class PoolKeywords(SandboxKeywords, ToolKeywords, ContainerEndKeywords, total=False):
    """What a pool takes for its executors."""


class ExecutorKeywords(SandboxKeywords, ArgumentKeywords, ContainerEndKeywords, total=False):
    """What any executor takes."""


class DockerExecutorKeywords(DockerKeywords, ArgumentKeywords, ContainerEndKeywords, total=False):
    """What `DockerCommandLineCodeExecutor` takes by name alone."""


class BubblewrapExecutorKeywords(BubblewrapKeywords, ArgumentKeywords, total=False):
    """What `BubblewrapCommandLineCodeExecutor` takes."""


class ExecutorConfig(BaseModel):
    """What a component config contains in addition to the options of the sandbox."""

    tools: list[ComponentModel] = Field(default_factory=list)
    approve_tool: ComponentModel | None = None


def explained(model: type[BaseModel], *positional: str) -> Callable[[F], F]:
    """Decorate an `__init__` that takes a model's fields by name: give it the signature and the docstring of all of them."""
    fields = model.model_fields
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    for name in dict.fromkeys((*positional, *fields)):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if name in positional else inspect.Parameter.KEYWORD_ONLY
        field = fields[name]
        parameters.append(inspect.Parameter(name, kind, default=field.default, annotation=field.annotation))

    def decorate(init: F) -> F:
        init.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        defaults = {
            n: "" if each.default in (None, ()) else f" Default {each.default!r}." for n, each in fields.items()
        }
        described = "\n".join(f"    {n}: {each.description}{defaults[n]}" for n, each in fields.items())
        init.__doc__ = f"Make it; nothing is started yet.\n\nArgs:\n{described}"
        return init

    return decorate


def options_of(arguments: BaseModel, model: type[M]) -> M:
    """Return the part of validated arguments that is the sandbox's options."""
    return model.model_construct(**{name: getattr(arguments, name) for name in model.model_fields})
