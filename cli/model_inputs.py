"""The environment variables and the file that a model client needs, so that it can be opened on another machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from autogen_codeact.cli.model_choice import REPLAY, ModelChoice, find_preset
from autogen_codeact.cli.models import find_secrets, names_secret, read_file

# Clients read them themselves when they are made.
_OF_CLIENTS = ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
_OF_COMPONENTS = ("ANTHROPIC_", "AZURE_", "GEMINI_", "LLAMA_", "OLLAMA_", "OPENAI_")
"""What the variables begin with that a component may read; which of them it does is not known."""


@dataclass(frozen=True)
class ModelInputs:
    """Variables and the content of a file; pickled only on the way to another process of the user's, and never shown.

    Args:
        text: The content of a recording or of a component's file; None if the model is given by name.
        variables: What the variables contain that the client may read; None for one that is not set.
    """

    text: str | None = field(default=None, repr=False)
    variables: dict[str, str | None] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, model: ModelChoice) -> Self:
        """Read them on this machine."""
        if model.spec.startswith(REPLAY):
            return cls(read_file(model.spec.removeprefix(REPLAY)))
        if model.is_file:
            names = [name for name in os.environ if name.startswith(_OF_COMPONENTS)]
            return cls(read_file(model.spec), {name: os.environ[name] for name in names})
        names = [model.key_variable, *_OF_CLIENTS]
        if (variable := find_preset(model.spec).url_variable) is not None:
            names.append(variable)
        return cls(None, {name: os.environ.get(name) for name in names})

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let this process have the variables, and none of its own that would change who gets the key."""
        variables = dict(self.variables)
        if self.variables and self.text is not None:
            own = (name for name in os.environ if name.startswith(_OF_COMPONENTS))
            variables = {**dict.fromkeys(own), **variables}
        before = {name: os.environ.get(name) for name in variables}
        _set(variables)
        try:
            yield
        finally:
            _set(before)

    def secrets(self) -> set[str]:
        """Return the keys among them."""
        named = {value for name, value in self.variables.items() if value is not None and names_secret(name)}
        return named | find_secrets(self.text or "")


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value
