"""The servers that a model's name stands for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from autogen_codeact.cli.output import CommandError

REPLAY = "replay:"


@dataclass(frozen=True)
class Preset:
    """A server of models that speaks OpenAI's format, with the name that stands before the `/` in `--model`."""

    name: str
    key_variable: str
    base_url: str
    url_variable: str | None = None  # variable that replaces the address
    needs_key: bool = True
    advice: str = "Is the model's server running, and its address right?"
    """What to do if there is no connection to it."""


# OpenAI's format for all of them: it needs no package of each vendor, and one client means the same errors, time limits and
# detection of broken streams everywhere.
OPENAI = Preset("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", "OPENAI_BASE_URL")
# AutoGen 0.7's own client for Anthropic always sends a temperature, which the package anthropic no longer takes.
ANTHROPIC = Preset("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", "ANTHROPIC_BASE_URL")
GEMINI = Preset("gemini", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com/v1beta/openai")
_START = "Start it with `ollama serve`, or set OLLAMA_HOST."
OLLAMA = Preset("ollama", "OLLAMA_API_KEY", "http://127.0.0.1:11434/v1", "OLLAMA_HOST", needs_key=False, advice=_START)
LMSTUDIO = Preset("lmstudio", "LMSTUDIO_API_KEY", "http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL", needs_key=False)
PRESETS = (OPENAI, ANTHROPIC, GEMINI, OLLAMA, LMSTUDIO)

# AutoGen sends requests for these names to other companies' servers, which must not receive a key of OpenAI's.
_BY_NAME = {
    "claude-": ANTHROPIC,
    "gemini-": GEMINI,
    "Llama-": Preset("llama", "LLAMA_API_KEY", "https://api.llama.com/compat/v1"),
}


def find_preset(model: str) -> Preset:
    """Return the server that a model's name stands for."""
    prefix, slash, _ = model.partition("/")
    for preset in PRESETS:
        if slash and prefix == preset.name:
            return preset
    return next((preset for start, preset in _BY_NAME.items() if model.startswith(start)), OPENAI)


def without_prefix(model: str) -> tuple[bool, str]:
    """Return whether a name begins with the prefix of a preset, and the model's name without it."""
    prefix, slash, name = model.partition("/")
    return (True, name) if slash and any(prefix == each.name for each in PRESETS) else (False, model)


def server_address(preset: Preset, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of a server: that in its variable, if it is set. Raises `CommandError` if that is invalid."""
    value = environment.get(preset.url_variable, "").strip() if preset.url_variable is not None else ""
    if not value:
        return preset.base_url
    if preset is OLLAMA:
        return _ollama_address(value)
    address = value.rstrip("/")
    # Other programs expect no version in this variable.
    return f"{address.removesuffix('/v1')}/v1" if preset is ANTHROPIC else address


def _ollama_address(host: str) -> str:
    """Return the address for a value of OLLAMA_HOST, such as `0.0.0.0`, `gpu:11434` or `https://gpu.example.com`."""
    parts = urlsplit(host if "://" in host else f"http://{host}")
    try:
        port = parts.port or (None if "://" in host else 11434)
    except ValueError as error:
        raise CommandError(f"OLLAMA_HOST={host} is not an address: {error}") from None
    # What a server listens on is not an address to connect to.
    name = "127.0.0.1" if parts.hostname in (None, "0.0.0.0") else str(parts.hostname)  # noqa: S104
    place = f"{name}:{port}" if port is not None else name
    return f"{parts.scheme}://{place}{parts.path.rstrip('/').removesuffix('/v1')}/v1"
