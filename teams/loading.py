"""Loading components; an untrusted configuration may contain only components and fields of an allow-list."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autogen_core import ComponentLoader, ComponentModel
from pydantic_core import from_json

from codeact_sandbox.types.limits import Limits, parse_size
from codeact_sandbox.types.options import DEFAULT_IMAGE

MAX_BYTES = 1024 * 1024
BOM = b"\xef\xbb\xbf"
MAX_COMPONENTS = 100
MAX_REFUSED = 20
MAX_SHOWN_CHARS = 80

PARTS = {
    "approval_func": frozenset({"tool_policy"}),
    "approve_tool": frozenset({"tool_policy"}),
    "code_executor": frozenset({"code_executor"}),
    "conditions": frozenset({"termination"}),
    "model_client": frozenset({"model"}),
    "model_context": frozenset({"model_context"}),
    "otherwise": frozenset({"tool_policy"}),
    "participants": frozenset({"agent", "team"}),
    "speakers": frozenset({"speakers"}),
    "team": frozenset({"team"}),
    "termination_condition": frozenset({"termination"}),
    "tools": frozenset({"tool"}),
    "workbench": frozenset({"workbench"}),
    "wrapped_agent": frozenset({"agent"}),
}
"""The kinds of components that a field may hold."""
KINDS = frozenset(
    {"model", "agent", "team", "code_executor", "tool_policy", "termination", "model_context", "workbench", "speakers"}
)

FIXED: dict[str, Any] = {
    "allow_pip": False,
    "auto_remove": True,
    "functions_module": "functions",
    "image": DEFAULT_IMAGE,
    "network": "none",
    "seccomp": "default",
    "stop_container": True,
}
"""Fields that may have their default only."""

MOST = {
    "max_retries": 10,
    "max_retries_on_error": 20,
    "max_selector_attempts": 20,
    "max_stalls": 20,
    "max_steps": 100,
    "max_tool_iterations": 20,
    "timeout": 3600,
}
"""Fields that are numbers, and the largest that is accepted."""

TEMPLATES = {"final_answer_prompt", "prompt", "selector_prompt", "tool_call_summary_format"}
"""Fields for `str.format`, which evaluates more than names: `{name:>9999999999}` takes all of the host's memory."""
_TEMPLATE = re.compile(r"(?:[^{}]|\{\{|\}\}|\{[A-Za-z_]\w*\})*")

OPENAI = "autogen_ext.models.openai.OpenAIChatCompletionClient"
# For these names AutoGen calls another vendor, and uses OpenAI's key if that vendor's is not set.
OTHER_VENDORS = ("gemini", "claude", "llama")
SHORT_NAMES: dict[str, str] = dict.fromkeys(("OpenAIChatCompletionClient", "openai_chat_completion_client"), OPENAI)
VARIABLES = {
    OPENAI: "OPENAI_API_KEY",
    "autogen_ext.models.anthropic.AnthropicChatCompletionClient": "ANTHROPIC_API_KEY",
}
"""The keys that models read from this process's environment."""


class Known(NamedTuple):
    """A component that may be loaded: its kind, and the names of its plain fields."""

    kind: str
    plain: str = ""


_EXECUTOR = Known("code_executor", "delete_tmp_files mode preload checkpoint")
_AGENT = "name description system_message model_client_stream"
_CODER = f"{_AGENT} supported_languages"
_OURS = f"{_CODER} stream_output describe_environment context_budget"
_TEAM = "name description max_turns"
_CLIENT = "model max_tokens temperature top_p response_format model_info model_capabilities"

ALLOWED = {
    "autogen_codeact.executors.DockerCommandLineCodeExecutor": _EXECUTOR,
    "autogen_codeact.executors.BubblewrapCommandLineCodeExecutor": _EXECUTOR,
    "autogen_codeact.executors.AllowTools": Known("tool_policy", "names"),
    "autogen_codeact.executors.Later": Known("tool_policy"),
    "autogen_codeact.executors.AskPerson": Known("tool_policy"),
    "autogen_codeact.agents.CodeExecutorAgent": Known("agent", f"{_OURS} sources"),
    "autogen_codeact.agents.CodeActAgent": Known("agent", f"{_OURS} prompt_style handoffs budget"),
    "autogen_codeact.teams.RoundRobin": Known("speakers"),
    "autogen_codeact.teams.Handoff": Known("speakers"),
    "autogen_codeact.teams.Graph": Known("speakers", "graph"),
    "autogen_codeact.teams.Selector": Known("speakers", "allow_repeated"),
    "autogen_codeact.teams.Team": Known("team", f"{_TEAM} emit_team_events begin_with_first budget"),
    "autogen_codeact.teams.FinalWordTermination": Known("termination", "word sources languages"),
    "autogen_agentchat.agents.AssistantAgent": Known("agent", f"{_AGENT} handoffs reflect_on_tool_use metadata"),
    "autogen_agentchat.agents.CodeExecutorAgent": Known("agent", f"{_CODER} sources"),
    "autogen_agentchat.agents.UserProxyAgent": Known("agent", "name description"),
    "autogen_agentchat.agents.SocietyOfMindAgent": Known("agent", "name description instruction response_prompt"),
    "autogen_agentchat.agents.MessageFilterAgent": Known("agent", "name filter"),
    "autogen_agentchat.teams.RoundRobinGroupChat": Known("team", f"{_TEAM} emit_team_events"),
    "autogen_agentchat.teams.Swarm": Known("team", f"{_TEAM} emit_team_events"),
    "autogen_agentchat.teams.GraphFlow": Known("team", f"{_TEAM} graph"),
    "autogen_agentchat.teams.SelectorGroupChat": Known(
        "team", f"{_TEAM} emit_team_events allow_repeated_speaker model_client_streaming"
    ),
    "autogen_agentchat.teams.MagenticOneGroupChat": Known("team", f"{_TEAM} emit_team_events"),
    "autogen_agentchat.conditions.ExternalTermination": Known("termination"),
    "autogen_agentchat.conditions.FunctionCallTermination": Known("termination", "function_name"),
    "autogen_agentchat.conditions.HandoffTermination": Known("termination", "target"),
    "autogen_agentchat.conditions.MaxMessageTermination": Known("termination", "max_messages include_agent_event"),
    "autogen_agentchat.conditions.SourceMatchTermination": Known("termination", "sources"),
    "autogen_agentchat.conditions.StopMessageTermination": Known("termination"),
    "autogen_agentchat.conditions.TextMentionTermination": Known("termination", "text"),
    "autogen_agentchat.conditions.TextMessageTermination": Known("termination", "source"),
    "autogen_agentchat.conditions.TimeoutTermination": Known("termination", "timeout_seconds"),
    "autogen_agentchat.conditions.TokenUsageTermination": Known(
        "termination", "max_total_token max_prompt_token max_completion_token"
    ),
    "autogen_agentchat.base.AndTerminationCondition": Known("termination"),
    "autogen_agentchat.base.OrTerminationCondition": Known("termination"),
    "autogen_core.model_context.BufferedChatCompletionContext": Known("model_context", "buffer_size"),
    "autogen_core.model_context.HeadAndTailChatCompletionContext": Known("model_context", "head_size tail_size"),
    "autogen_core.model_context.UnboundedChatCompletionContext": Known("model_context"),
    "autogen_core.tools.StaticStreamWorkbench": Known("workbench"),
    "autogen_core.tools.StaticWorkbench": Known("workbench"),
    "autogen_ext.models.openai.OpenAIChatCompletionClient": Known(
        "model",
        f"{_CLIENT} frequency_penalty presence_penalty logit_bias seed stop stream_options parallel_tool_calls "
        "reasoning_effort add_name_prefixes include_name_in_message",
    ),
    "autogen_ext.models.anthropic.AnthropicChatCompletionClient": Known(
        "model", f"{_CLIENT} top_k stop_sequences thinking"
    ),
    "autogen_ext.models.replay.ReplayChatCompletionClient": Known("model", "chat_completions model_info"),
}
"""The components that may be loaded, by provider. None of them runs code of its configuration in this process."""


class RefusedConfigError(ValueError):
    """A configuration contains what an untrusted one may not contain; nothing of it was loaded.

    Args:
        refused: The first refused items: the path in the JSON, and the reason.
    """

    def __init__(self, refused: list[str]) -> None:
        self.refused = tuple(refused)
        shown = "\n".join(f"- {each}" for each in refused)
        super().__init__(
            f"This untrusted configuration was not loaded, because it contains:\n{shown}\n"
            "Remove these, or read the configuration, and load it with trusted=True if you accept them."
        )


def checked(source: str | bytes | Mapping[str, Any], *, allow_keys: bool, work_dir: str | None) -> dict[str, Any]:
    """Return what may be loaded of an untrusted configuration, without loading anything."""
    try:
        # What is loaded is what was checked, whatever the caller's objects do.
        text = source if isinstance(source, str | bytes) else json.dumps(source, allow_nan=False)
        short = text[: MAX_BYTES + 1]
        data: Any = from_json(short.removeprefix(BOM) if isinstance(short, bytes) else short, allow_inf_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"The configuration is not JSON of at most {MAX_BYTES:,} bytes, as an untrusted one must be: {error}."
        ) from None
    check = _Check(allow_keys, work_dir)
    check.component(data, "")
    if check.refused:
        raise RefusedConfigError(check.refused)
    return dict(data)


class _Check:
    def __init__(self, allow_keys: bool, work_dir: str | None) -> None:
        self.refused: list[str] = []
        self._allow_keys = allow_keys
        self._work_dir = work_dir
        self._components = 0

    def component(self, data: Any, place: str, kinds: frozenset[str] = KINDS) -> None:
        """Check a component, and write its full name and `work_dir` into it."""
        self._components += 1
        if (reason := self._problem(data, kinds)) is not None:
            self._refuse(place or "the configuration", reason)
            return
        provider, config = data["provider"], data["config"]
        for field, value in config.items():
            inside = f"{place}.config.{_shown(field)}".removeprefix(".")
            if field in PARTS:
                parts = value if isinstance(value, list) else [value] if value is not None else []
                for index, part in enumerate(parts):
                    self.component(part, f"{inside}[{index}]" if isinstance(value, list) else inside, PARTS[field])
            elif (why := _why_not(provider, field, value)) is not None:
                self._refuse(inside, why)
        if self._work_dir is not None and ALLOWED[provider].kind == "code_executor":
            config["work_dir"] = self._work_dir

    def _problem(self, data: Any, kinds: frozenset[str]) -> str | None:
        if self._components > MAX_COMPONENTS:
            return f"is one of more than {MAX_COMPONENTS} components"
        if not isinstance(data, dict) or not isinstance(data.get("provider"), str):
            return "is not a component: an object with `provider` and `config`"
        name: str = data["provider"]
        provider = SHORT_NAMES.get(name, name)
        data["provider"] = provider
        if provider not in ALLOWED:
            return f"{_shown(provider)} is not a component that an untrusted configuration may contain"
        if ALLOWED[provider].kind not in kinds:
            return f"{provider} is not a component of the right kind; here it must be: {' or '.join(sorted(kinds))}"
        if provider in VARIABLES and not self._allow_keys:
            return f"{provider} reads {VARIABLES[provider]} of this process's environment; allow_keys=True permits it"
        return None if isinstance(data.get("config"), dict) else "has a config that is not an object"

    def _refuse(self, place: str, reason: str) -> None:
        self.refused.append(f"{place}: {reason}")
        if len(self.refused) == MAX_REFUSED:
            raise RefusedConfigError(self.refused)


def _why_not(provider: str, field: str, value: Any) -> str | None:  # noqa: PLR0911 - one for each kind of field
    if value is None or value in ([], {}):
        return None
    if field in FIXED:
        return None if value == FIXED[field] else f"may only be {FIXED[field]!r}"
    if field == "limits":
        return None if _lowers_limits(value) else "may only lower the default limits"
    if field == "budget" and isinstance(value, dict) and ALLOWED[provider].kind == "agent":
        return _why_not(provider, "max_steps", value.get("max_steps"))
    if field in MOST:
        is_allowed = isinstance(value, int | float) and value <= MOST[field]
        return None if is_allowed else f"must be a number of at most {MOST[field]:,}"
    if field in TEMPLATES:
        is_plain = isinstance(value, str) and _TEMPLATE.fullmatch(value)
        return None if is_plain else "may contain plain {name} fields only"
    if field not in ALLOWED[provider].plain.split():
        return "is not a field that an untrusted configuration may set"
    if provider == OPENAI and field == "model" and str(value).lower().startswith(OTHER_VENDORS):
        return "names a model of another vendor, who might be sent the OpenAI key; use that vendor's own client"
    return None


def _lowers_limits(limits: Any) -> bool:
    most = Limits().resolved().model_dump()
    try:
        given = {name: _amount(each) for name, each in limits.items() if each is not None}
        return all(most[name] is None or amount <= _amount(most[name]) for name, amount in given.items())
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def _amount(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _shown(text: str) -> str:
    return ascii(text)[1:-1][:MAX_SHOWN_CHARS]


def load_component(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    trusted: bool = False,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
    expected: type[Any] = object,
) -> Any:
    """Load an agent, a team, an executor or another component from its configuration.

    A trusted configuration is loaded as AutoGen does it, which can run code on this machine. An untrusted one may contain
    only components and fields of an allow-list (docs/security.md), and is checked as a whole before anything is imported.

    Args:
        source: JSON text, the path of a JSON file, the parsed JSON, or a result of `dump_component()`.
        trusted: Whether the author of the configuration may run code on this machine. Default False.
        allow_keys: Whether models of an untrusted configuration may use this process's keys at their vendor's own server,
            for example OPENAI_API_KEY. Default False.
        work_dir: The `work_dir` of each executor of an untrusted configuration. Default None: a temporary folder each.
        expected: Class that the component must be an instance of. Default: any.

    Returns:
        The component.

    Raises:
        RefusedConfigError: The configuration is untrusted and contains what is not allowed.
        ValueError: It is not a component's configuration.
        TypeError: The component is not of the expected class.
        NotImplementedError: It was dumped by a version that the component's class can't read.
        OSError: The file can't be read.
    """
    if not trusted:
        model: Any = check_untrusted(source, allow_keys=allow_keys, work_dir=work_dir)
    elif work_dir is not None:
        raise ValueError("work_dir= is for untrusted configurations; a trusted one contains its own.")
    elif isinstance(source, str | bytes | Path):
        model = _parsed(source)
    else:
        model = source
    if not isinstance(model, ComponentModel):
        model = ComponentModel.model_validate(model)
    return ComponentLoader.load_component(model, expected=expected)


def check_untrusted(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
) -> dict[str, Any]:
    """Check an untrusted configuration without loading anything."""
    if isinstance(source, ComponentModel):
        source = source.model_dump()
    elif isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    return checked(source, allow_keys=allow_keys, work_dir=str(work_dir) if work_dir is not None else None)


def _parsed(source: str | bytes | Path) -> Any:
    name = str(source) if isinstance(source, Path) else "The configuration"
    text = source.read_bytes() if isinstance(source, Path) else source
    try:
        return from_json(text if isinstance(text, str) else text.removeprefix(BOM), allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON ({error}). Give the text, or a pathlib.Path of a file.") from None
