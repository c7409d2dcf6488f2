"""The model of `codeact run`. Keys are read from the environment, and are never shown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autogen_core import ComponentModel
from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from autogen_codeact.agents.model_calls import DeadlineClient, ModelTimeoutError
from autogen_codeact.cli.jobs import NO_MODEL, ModelChoice
from autogen_codeact.cli.model_servers import (
    ANTHROPIC,
    OPENAI,
    PRESETS,
    REPLAY,
    Preset,
    find_preset,
    server_address,
    without_prefix,
)
from autogen_codeact.cli.output import CommandError
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.redaction import known_secrets
from codeact_sandbox.types.filenames import printable

_MAX_ERROR_CHARS = 600
_NO_KEY = "none"  # what a server that needs no key gets, because the client insists on one
_LIMIT_OF_CLIENTS_S = 600.0  # how long OpenAI's client waits if it is not told otherwise
# By name: importing openai takes half a second, and other clients don't need it.
_ADVICE = {
    "APIConnectionError": "Is the model's server running, and --base-url right?",
    "AuthenticationError": "Check the key in {}.",
    "InternalServerError": "The fault is the model's server's: look at its log, try again later, or use another model.",
    "NotFoundError": "Check the model's name, and the server's address.",
}
_WAIT_LONGER = "--model-timeout SECONDS waits longer."


def open_model(choice: ModelChoice) -> DeadlineClient:
    """Create the model client, with a time limit for a silent server."""
    if not choice.spec:
        raise CommandError(NO_MODEL)
    choice.check()
    return DeadlineClient(_client(choice), choice.timeout_s)


def _client(choice: ModelChoice) -> ChatCompletionClient:
    if choice.spec.startswith(REPLAY):
        name = choice.spec.removeprefix(REPLAY)
        return RecordedModel(parse_answers(read_file(name), name))
    if choice.is_file:
        return _component(choice.spec)
    return _by_name(choice)


def resumed_key(variable: str | None) -> str | Callable[[Mapping[str, Any]], str | None]:
    """Return the key of a model that is made again, in the variable that the user has named; or what finds it."""
    if variable is None:
        return key_for
    if key := os.environ.get(variable, "").strip():
        return key
    raise CommandError(f"There is no key in {variable}: set it, or name another variable with --api-key-env.")


def key_for(config: Mapping[str, Any]) -> str | None:
    """Return the key for a client that is made from its configuration again, without the key."""
    address = config.get("base_url")
    preset = next((each for each in PRESETS if address in (each.base_url, server_address(each))), None)
    if preset is None:
        return None
    if key := os.environ.get(preset.key_variable, "").strip():
        return key
    if not preset.needs_key:
        return _NO_KEY
    raise RunError(_no_key(printable(str(config.get("model"))[:100]), preset.key_variable))


def without_key(error: RunError, models: Iterable[str | None]) -> RunError:
    """Return an error of loading a model client that has found no key as `codeact run` says it; any other error as it is."""
    if OPENAI.key_variable not in str(error.__cause__):
        return error
    names = ", ".join(printable(name[:100]) for name in dict.fromkeys(models) if name is not None)
    return RunError(_no_key(names or "the model", OPENAI.key_variable))


def _no_key(model: str, variable: str, *, own_server: bool = False) -> str:
    elsewhere = " (a server that wants no key takes any value)" if own_server else ""
    return f"There is no key for {model}: set {variable}{elsewhere}, or name another variable with --api-key-env."


def describe_error(error: BaseException, choice: ModelChoice) -> str:
    """Describe an error of a model client in one line without keys."""
    parts = [f"{type(error).__name__}: {error}" if str(error) else type(error).__name__]
    if isinstance(error, ModelTimeoutError):
        return f"{str(error)[:1].upper()}{str(error)[1:]}. {_WAIT_LONGER}"
    # "Connection error." alone does not help; the last cause says what is wrong.
    cause = error.__cause__ or error.__context__
    while cause is not None:
        # The first line: httpx adds a link to a page about the status.
        first_line = str(cause).partition("\n")[0]
        if first_line and first_line not in parts[0]:
            parts[1:] = [f"({first_line})"]
        cause = cause.__cause__ or cause.__context__
    if advice := advice_for(type(error).__name__, choice):
        parts.append(advice)
    line = " ".join(without_secrets(" ".join(parts), choice).split())
    return line if len(line) <= _MAX_ERROR_CHARS else line[: _MAX_ERROR_CHARS - 1] + "…"


def advice_for(error_class: str, choice: ModelChoice) -> str | None:
    """Return what to check after an error of a model's server, if there is something."""
    if error_class == "APIConnectionError" and choice.base_url is None:
        return find_preset(choice.spec).advice
    return _ADVICE[error_class].format(choice.key_variable) if error_class in _ADVICE else None


def without_secrets(text: str, choice: ModelChoice) -> str:
    """Replace every key that this process knows in a text; servers quote them in their errors."""
    for secret in sorted(_secrets(choice), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(choice: ModelChoice) -> set[str]:
    component = None
    if choice.spec.endswith(".json"):
        with suppress(CommandError):  # then no client was created from it either
            component = parse_json(read_file(choice.spec), choice.spec)
    return {each.strip() for each in known_secrets(component, {"key": os.environ.get(choice.key_variable, "")})}


def read_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text") from error


def _component(name: str) -> ChatCompletionClient:
    fields = parse_json(read_file(name), name)
    if isinstance(fields, list):
        raise CommandError(f"{name} is a list, as recorded answers are: --model {REPLAY}{name} reads them.")
    try:
        loaded: ChatCompletionClient = ChatCompletionClient.load_component(ComponentModel.model_validate(fields))
    except ValidationError as error:
        # The text of the error would quote the file, including its key.
        problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors())
        raise CommandError(f"{name} is not the AutoGen component of a model client: {problems}") from None
    except Exception as error:  # whatever the constructor of a client raises
        if str(error) == "Invalid component class":
            provider = fields["provider"]
            raise CommandError(
                f"{name} names {provider}, which is not a ChatCompletionClient: give the full name of one."
            ) from error
        raise CommandError(f"{name} can't be loaded: {describe_error(error, ModelChoice(name))}") from error
    return loaded


def _by_name(choice: ModelChoice) -> ChatCompletionClient:
    # With --base-url, a name such as `openai/gpt-4o` is the server's own.
    has_prefix, name = without_prefix(choice.spec) if choice.base_url is None else (False, choice.spec)
    if not name.strip():
        raise CommandError(f"--model {choice.spec} names no model: add its name.")
    preset = find_preset(choice.spec)
    options: dict[str, Any] = {"model": name, "api_key": _key(choice, preset)}
    if choice.base_url is not None:
        options["base_url"] = choice.base_url
    elif has_prefix:
        options["base_url"] = server_address(preset)
    if choice.timeout_s > _LIMIT_OF_CLIENTS_S:
        options["timeout"] = choice.timeout_s
    from autogen_ext.models.openai import OpenAIChatCompletionClient  # noqa: PLC0415 - takes a second, and a recording does not need it

    try:
        return OpenAIChatCompletionClient(**options)
    except ValueError as error:
        if "model_info" not in str(error):
            raise CommandError(f"The model can't be used: {describe_error(error, choice)}") from error
    info = _UNKNOWN_CLAUDE if has_prefix and preset is ANTHROPIC else _UNKNOWN_MODEL
    return OpenAIChatCompletionClient(**options, model_info=info)


_UNKNOWN_MODEL = ModelInfo(
    # Structured output is safe to promise: if a server refuses it, the agent requests plain JSON.
    vision=False,
    function_calling=True,
    json_output=True,
    family=ModelFamily.UNKNOWN,
    structured_output=True,
)


# Anthropic's server takes no notice of a requested form: the agent asks for it in words.
_UNKNOWN_CLAUDE = ModelInfo(
    vision=True, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)


def _key(choice: ModelChoice, preset: Preset) -> str:
    variable = choice.key_variable
    key = os.environ.get(variable, "").strip()
    if not key:
        if choice.base_url is None and choice.api_key_env is None and not preset.needs_key:
            return _NO_KEY
        problem = _no_key(choice.spec, variable, own_server=choice.base_url is not None)
        if choice.base_url is None and preset is OPENAI and not choice.spec.startswith("openai/"):
            problem += f" A name without a prefix ({', '.join(each.name for each in PRESETS)}) is a model of OpenAI."
        raise CommandError(problem)
    if not (key.isascii() and key.isprintable()):
        raise CommandError(f"The key in {variable} contains characters that no key has. Copy it again.")
    return key


_FORM = 'give a JSON list of strings or of {"content": "…", "thought": "…"}'
_WORDS = re.compile(r"\s*\S+\s*")


def parse_json(text: str, name: str, form: str = "") -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{name}:{error.lineno} is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    except (ValueError, RecursionError):
        problem = f"{name} is nested too deep, or has a number that is too long"
    raise CommandError(f"{problem}: {form}" if form else problem)


class RecordingEnded(RuntimeError):
    """There were more requests than the recording has answers."""


class RecordedModel(ReplayChatCompletionClient):
    """AutoGen's replay client, with streaming that keeps line breaks and spaces."""

    def __init__(self, answers: Sequence[CreateResult]) -> None:
        info = ModelInfo(
            vision=False, function_calling=False, json_output=True, family=ModelFamily.UNKNOWN, structured_output=True
        )
        super().__init__(answers, info)

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        if len(self.create_calls) >= self.provided_message_count:
            raise RecordingEnded("the recording has no more answers, and one more was requested")
        return await super().create(*args, **kwargs)

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the next answer word by word, then as a whole."""
        answer = await self.create(*args, **kwargs)
        for word in _WORDS.findall(str(answer.content)):
            yield word
        yield answer


def parse_answers(text: str, name: str) -> list[CreateResult]:
    recorded = parse_json(text, name, _FORM)
    if not (isinstance(recorded, list) and recorded):
        raise CommandError(f"{name} holds no answers: {_FORM}")
    return [_to_answer(entry, number, name) for number, entry in enumerate(recorded, 1)]


def _to_answer(entry: Any, number: int, name: str) -> CreateResult:
    fields = entry if isinstance(entry, dict) else {"content": entry if isinstance(entry, str) else None}
    content, thought = fields.get("content"), fields.get("thought")
    if isinstance(content, list):
        content = "\n".join(map(str, content))
    if not isinstance(content, str):
        raise CommandError(f"{name}: answer {number} has no text: {_FORM}")
    usage = RequestUsage(prompt_tokens=0, completion_tokens=len(content.split()))
    thought = str(thought) if thought is not None else None
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=True, thought=thought)
