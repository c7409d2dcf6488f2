"""Agents as configuration and as saved state."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_core import ComponentModel
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer


class CodeExecutorAgentConfig(BaseModel):
    """What a `CodeExecutorAgent` is made of; the fields mean what the constructor's arguments mean."""

    model_config = ConfigDict(extra="forbid")

    name: str
    code_executor: ComponentModel
    model_client: ComponentModel | None = None
    model_context: ComponentModel | None = None
    model_client_stream: bool = False
    max_retries_on_error: int = Field(default=0, ge=0)
    description: str | None = None
    system_message: str | None = CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE
    sources: list[str] | None = None
    supported_languages: list[str] | None = None
    stream_output: bool = False

    @model_serializer(mode="wrap")
    def _keep_explicit_none(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # AutoGen dumps with exclude_none; a system message switched off would come back as the default one.
        return {**serialise(self), "system_message": self.system_message}


class CodeExecutorAgentState(BaseModel):
    """What `save_state` keeps: the conversation with the model."""

    type: str = "CodeExecutorAgentState"
    version: str = "1.0.0"
    llm_context: Mapping[str, Any] = Field(default_factory=lambda: {"messages": []})


def load_part(expected: type[Any], model: ComponentModel | None, field: str) -> Any:
    """Load a component that is part of another one.

    Args:
        expected: What it has to be.
        model: Its configuration; for None the part is None too.
        field: Where it stands, for the error.

    Raises:
        ModuleNotFoundError: There is no such module, or one that it needs is missing.
        TypeError: It is something else. Then it is not even made: a foreign class must not run its constructor.
    """
    if model is None:
        return None
    module, _, name = model.provider.rpartition(".")
    if module:  # a name without a module is one of AutoGen's own abbreviations
        try:
            named = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{field} names {model.provider}, which can't be imported: {error}") from error
        if not (isinstance(named, type) and issubclass(named, expected)):
            raise TypeError(f"{field} names {model.provider}, which is not a {expected.__name__}.")
    return expected.load_component(model)
