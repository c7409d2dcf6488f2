"""The model that the options of a command choose. Imports nothing slow."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.model_presets import find_preset

DEFAULT_TIMEOUT_S = 120.0
REPLAY = "replay:"


@dataclass(frozen=True)
class ModelChoice:
    """The model that the options name.

    Args:
        spec: A model's name, `replay:FILE`, or a file of an AutoGen component, whose name ends in `.json`.
        base_url: Server of a model given by name, which speaks OpenAI's format; None for the server that the name stands for.
        api_key_env: Variable with the key; None for the default variable of the server.
        untrusted: Whether the file of a component may contain only what an untrusted configuration may.
        timeout_s: How long the model's server may send nothing, in seconds.
    """

    spec: str
    base_url: str | None = None
    api_key_env: str | None = None
    untrusted: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def is_file(self) -> bool:
        """Whether it is a recording or a component, and not a name."""
        return self.spec.startswith(REPLAY) or self.spec.endswith(".json")

    @property
    def key_variable(self) -> str:
        """Name of the variable with the key."""
        if self.api_key_env is not None:
            return self.api_key_env
        if self.base_url is not None or self.is_file:
            return "OPENAI_API_KEY"
        return find_preset(self.spec).key_variable

    def with_name(self, spec: str) -> ModelChoice:
        """Return the choice of another model, of the same server if that was named with `--base-url`.

        The key's variable stays only if the server stays, so that no server gets the key of another one.
        """
        other = ModelChoice(spec, timeout_s=self.timeout_s)
        if other.is_file or self.is_file:
            return other
        same_server = self.base_url is not None or find_preset(spec) == find_preset(self.spec)
        return replace(other, base_url=self.base_url, api_key_env=self.api_key_env) if same_server else other

    def check(self) -> None:
        """Check that the options fit together."""
        if self.is_file and (self.base_url is not None or self.api_key_env is not None):
            raise CommandError(
                "--base-url and --api-key-env go with a model's name, not with a recording or a component"
            )
        if self.base_url is not None and not re.match(r"https?://[^/]", self.base_url):
            raise CommandError(f"--base-url {self.base_url} is not an address: it begins with http:// or https://")
        if self.untrusted and not self.spec.endswith(".json"):
            raise CommandError("--untrusted goes with --model FILE.json")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise CommandError("--model-timeout is a number of seconds above 0")
