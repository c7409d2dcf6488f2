"""What configs keep of tools and of their approval: components, but no functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from autogen_core import ComponentBase, ComponentModel
from autogen_core.tools import BaseTool, Workbench

from codeact_sandbox.tools.approval import ApproveTool
from codeact_sandbox.tools.mcp_client import McpServer

MCP_SERVER = "codeact_sandbox.McpServer"

_LOADED: WeakKeyDictionary[Any, ComponentModel] = WeakKeyDictionary()
"""The configs from which tools were loaded."""
# AutoGen's `dump_component` takes no argument that could say it.
_OMITTING = ContextVar("_OMITTING", default=False)


class OwnProvider:
    """A component whose subclasses are dumped under their own names; an inherited name would be that of the base class."""

    component_provider_override: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "component_provider_override" not in cls.__dict__:
            cls.component_provider_override = None


@contextmanager
def omitting_functions() -> Iterator[None]:
    """Let components be dumped without their functions, which are given again after loading."""
    token = _OMITTING.set(True)
    try:
        yield
    finally:
        _OMITTING.reset(token)


def refuse_functions(names: Sequence[str], message: str) -> None:
    """Refuse functions that can't be written into a configuration, unless they are to be omitted."""
    if names and not _OMITTING.get():
        raise ValueError(message)


def dump_approval(approve: ApproveTool | None) -> ComponentModel | None:
    """Write the approval policy for a config."""
    if approve is None:
        return None
    if not isinstance(approve, ComponentBase):
        name = getattr(approve, "__qualname__", None) or type(approve).__name__
        refuse_functions(
            [name],
            f"approve_tool=`{name}` can't be written into a config: use a policy such as AllowTools or AskPerson, "
            "or pass it where the config is loaded.",
        )
        return None
    return approve.dump_component()


def dump_tools(tools: Sequence[object]) -> list[ComponentModel]:
    dumped: list[ComponentModel] = []
    refused: list[str] = []
    for each in tools:
        if isinstance(each, McpServer):
            dumped.append(ComponentModel(provider=MCP_SERVER, component_type="tool", config=each.config()))
            continue
        if isinstance(each, ComponentBase) and each in _LOADED:
            dumped.append(_LOADED[each])  # a FunctionTool that was loaded has no source to write
            continue
        try:
            dumped.append(each.dump_component())  # type: ignore[attr-defined]
        except (AttributeError, NotImplementedError):
            refused.append(_label(each))
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being written
            refused.append(f"{_label(each)} ({type(error).__name__}: {error})")
    refuse_functions(
        refused,
        f"These tools can't be written into a config: {', '.join(refused)}. A config holds AutoGen's tool and "
        "workbench components; wrap a function with FunctionTool(function, description=...), or pass the tools where "
        "the config is loaded.",
    )
    return dumped


def load_tools(models: Sequence[ComponentModel]) -> list[BaseTool[Any, Any] | Workbench | McpServer]:
    tools: list[BaseTool[Any, Any] | Workbench | McpServer] = []
    for model in models:
        if model.provider == MCP_SERVER:
            tools.append(McpServer(**model.config))
            continue
        if model.component_type not in ("tool", "workbench"):
            raise TypeError(
                f"tools names {model.provider}, a {model.component_type}; it must be a tool or a workbench."
            )
        kind: Any = Workbench if model.component_type == "workbench" else BaseTool
        tool = kind.load_component(model)
        _LOADED[tool] = model.model_copy(deep=True)
        tools.append(tool)
    return tools


def loaded_from(tool: object) -> ComponentModel | None:
    return _LOADED.get(tool) if isinstance(tool, ComponentBase) else None


def _label(tool: object) -> str:
    name = getattr(tool, "name", None) or getattr(tool, "__qualname__", None) or type(tool).__name__
    return f"`{name}`"
