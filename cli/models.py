"""The model that a command's options ask for. Keys come from the environment, and are never shown."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient, ModelFamily, ModelInfo
from pydantic import ValidationError

from autogen_codeact.agents.config import load_part
from autogen_codeact.cli.ending import CommandError
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.teams.loading import RefusedConfigError, check_untrusted

REPLAY = "replay:"
_MAX_ERROR_CHARS = 600
_SHORTEST_SECRET = 6
# Their servers are AutoGen's defaults for these names, and must not be sent a key of OpenAI's.
_KEYS_BY_NAME = {"claude-": "ANTHROPIC_API_KEY", "gemini-": "GEMINI_API_KEY", "Llama-": "LLAMA_API_KEY"}
# By name: importing openai takes half a second, and other clients need none of it.
_ADVICE = {
    "APIConnectionError": "Is the model's server there, and --base-url right?",
    "AuthenticationError": "Check the key in {}.",
    "NotFoundError": "Check the model's name, and --base-url.",
}


@dataclass(frozen=True)
class ModelChoice:
    """What the user chose.

    Args:
        spec: A model's name, `replay:FILE`, or a file of an AutoGen component, whose name ends in `.json`.
        base_url: Server for a model given by name; None for the one that belongs to the name.
        api_key_env: Variable that holds the key; None for the one that belongs to the server.
        untrusted: Whether the file of a component may contain only what an untrusted configuration may.
    """

    spec: str
    base_url: str | None = None
    api_key_env: str | None = None
    untrusted: bool = False

    @property
    def key_variable(self) -> str:
        """Name of the variable that holds the key."""
        if self.api_key_env is not None:
            return self.api_key_env
        if self.base_url is None:
            for prefix, variable in _KEYS_BY_NAME.items():
                if self.spec.startswith(prefix):
                    return variable
        return "OPENAI_API_KEY"


def open_model(choice: ModelChoice) -> ChatCompletionClient:
    """Make the client.

    Args:
        choice: Which model.

    Raises:
        CommandError: An option, a file or the key is missing or wrong; the message holds no key.
    """
    is_file = choice.spec.startswith(REPLAY) or choice.spec.endswith(".json")
    if is_file and (choice.base_url is not None or choice.api_key_env is not None):
        raise CommandError("--base-url and --api-key-env go with a model's name, not with a recording or a component")
    if choice.untrusted and not choice.spec.endswith(".json"):
        raise CommandError("--untrusted goes with --model FILE.json")
    if choice.spec.startswith(REPLAY):
        name = choice.spec.removeprefix(REPLAY)
        return RecordedModel(parse_answers(_read(name), name))
    if is_file:
        return _component(choice.spec, untrusted=choice.untrusted)
    return _by_name(choice)


def describe_error(error: BaseException, choice: ModelChoice) -> str:
    """Put an error of a model client into one line without keys.

    Args:
        error: What was raised.
        choice: The model.
    """
    words = [f"{type(error).__name__}: {error}" if str(error) else type(error).__name__]
    # "Connection error." alone helps nobody; what is wrong is at the bottom.
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if str(cause) and str(cause) not in words[0]:
            words[1:] = [f"({cause})"]
        cause = cause.__cause__ or cause.__context__
    words += [advice.format(choice.key_variable) for name, advice in _ADVICE.items() if type(error).__name__ == name]
    line = " ".join(without_secrets(" ".join(words), choice).split())
    return line if len(line) <= _MAX_ERROR_CHARS else line[: _MAX_ERROR_CHARS - 1] + "…"


def without_secrets(text: str, choice: ModelChoice) -> str:
    """Take every key that this process knows of out of a text; servers quote them in their errors."""
    for secret in sorted(_secrets(choice), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(choice: ModelChoice) -> set[str]:
    named = {value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN", "_SECRET"))}
    named.add(os.environ.get(choice.key_variable, ""))
    if choice.spec.endswith(".json"):
        with suppress(CommandError, ValueError):  # then no client was made from it either
            named |= _strings_of_keys(json.loads(_read(choice.spec)))
    return {secret.strip() for secret in named if len(secret.strip()) >= _SHORTEST_SECRET}


def _strings_of_keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return {found for item in value for found in _strings_of_keys(item)}
    if not isinstance(value, dict):
        return set()
    keys = {item for name, item in value.items() if isinstance(item, str) and _sounds_secret(name)}
    return keys | {found for item in value.values() for found in _strings_of_keys(item)}


def _sounds_secret(name: str) -> bool:
    return any(word in name.lower() for word in ("key", "token", "secret", "password", "authorization"))


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text") from error


def _component(name: str, *, untrusted: bool) -> ChatCompletionClient:
    try:
        text = _read(name)
        if untrusted:
            # The user chose to use the key; it is sent only to the vendor's own server.
            text = json.dumps(check_untrusted(text, allow_keys=True))
        loaded: ChatCompletionClient = load_part(ChatCompletionClient, ComponentModel.model_validate_json(text), name)
    except ValidationError as error:
        # Its own words would quote the file, key and all.
        problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors())
        raise CommandError(f"{name} is not the AutoGen component of a model client: {problems}") from None
    except CommandError:
        raise
    except RefusedConfigError as error:
        raise CommandError(f"{name}: {error}") from None
    except (ImportError, TypeError) as error:
        raise CommandError(f"{name} can't be loaded: {without_secrets(str(error), ModelChoice(name))}") from error
    except Exception as error:  # whatever the constructor of somebody's client raises
        raise CommandError(f"{name} can't be loaded: {describe_error(error, ModelChoice(name))}") from error
    return loaded


def _by_name(choice: ModelChoice) -> ChatCompletionClient:
    from autogen_ext.models.openai import OpenAIChatCompletionClient  # noqa: PLC0415 - takes a second, and a recording needs none

    options: dict[str, Any] = {"model": choice.spec, "api_key": _key(choice)}
    if choice.base_url is not None:
        options["base_url"] = choice.base_url
    try:
        return OpenAIChatCompletionClient(**options)
    except ValueError as error:
        if "model_info" not in str(error):
            raise CommandError(f"The model can't be used: {describe_error(error, choice)}") from error
    return OpenAIChatCompletionClient(**options, model_info=_UNKNOWN_MODEL)


_UNKNOWN_MODEL = ModelInfo(
    # Promising structured output costs nothing: where a server refuses it, the agent asks in a looser form.
    vision=False,
    function_calling=True,
    json_output=True,
    family=ModelFamily.UNKNOWN,
    structured_output=True,
)


def _key(choice: ModelChoice) -> str:
    variable = choice.key_variable
    key = os.environ.get(variable, "").strip()
    if not key:
        elsewhere = " (a server that wants no key takes any value)" if choice.base_url is not None else ""
        raise CommandError(
            f"There is no key for {choice.spec}: set {variable}{elsewhere}, or name another variable with --api-key-env."
        )
    if not (key.isascii() and key.isprintable()):
        raise CommandError(f"The key in {variable} holds characters that no key has. Copy it again.")
    return key
