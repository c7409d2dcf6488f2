"""The content that an untrusted configuration may have: an allow-list of components and of their fields."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from codeact_sandbox.types.limits import Limits, parse_size
from codeact_sandbox.types.options import DEFAULT_IMAGE

Rule = Callable[[Any], str | None]
"""Takes the value of a field and returns why it is refused, or None."""


@dataclass(frozen=True)
class Part:
    """A field that holds a component of a kind, such as "agent", or a list of `many`."""

    kind: str
    many: bool = False


@dataclass(frozen=True)
class Known:
    """A component that may be loaded. A field that is not in `fields` must be empty; `variable` holds the key that it reads."""

    kind: str
    fields: Mapping[str, Rule | Part]
    variable: str | None = None


def _any(_value: Any) -> None:
    return None


def _only(expected: Any, reason: str) -> Rule:
    return lambda value: None if value == expected else reason


def _at_most(limit: float) -> Rule:
    def check(value: Any) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (is_number and value <= limit):
            return None
        return f"must be a number of at most {limit:,}"

    return check


def _template(value: Any) -> str | None:
    """Allow plain `{name}` only: a width such as `{name:>9999999999}` takes all of the host's memory."""
    try:
        fields = list(string.Formatter().parse(value)) if value is not None else []
    except (TypeError, ValueError):
        return "is not a template"
    for _, name, width, conversion in fields:
        if name is not None and (width or conversion or not name.isidentifier()):
            return "may contain plain {name} fields only, because str.format evaluates the rest in this process"
    return None


def _text_messages(value: Any) -> str | None:
    messages = value if isinstance(value, list) else [] if value is None else [value]
    if all(isinstance(each, dict) and isinstance(each.get("content"), str) for each in messages):
        return None
    return "may contain messages of text only"


def _literals(value: Any) -> str | None:
    texts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if isinstance(value, dict) and not any("${" in text for text in texts if isinstance(text, str)):
        return None
    return "reads variables of this process's environment"


def _limits(value: Any) -> str | None:
    most = Limits().resolved().model_dump()
    if not isinstance(value, dict):
        return "must be an object"
    for name, limit in value.items():
        if name not in most:
            return "has a field that is no limit"
        if limit is None or (bound := most[name]) is None:
            continue
        try:
            above = parse_size(limit) > parse_size(bound) if isinstance(bound, str) else not limit <= bound
        except (TypeError, ValueError):
            above = True
        if above:
            return f"must not raise {name} above {bound}"
    return None


def _own_server(value: Any) -> str | None:
    # For these names AutoGen calls another vendor, and uses OpenAI's key if that vendor's is not set.
    if isinstance(value, str) and not value.lower().startswith(("gemini", "claude", "llama")):
        return None
    return "names a model of another vendor, who might be sent the OpenAI key; use that vendor's own client"


def _fields(*names: str, **rules: Rule | Part) -> dict[str, Rule | Part]:
    return {**dict.fromkeys(names, _any), **rules}


REASONS = {
    "allow_domains": "lets the code reach hosts",
    "allow_pip": "lets the code read the package indexes of this machine",
    "api_key": "names a key, whose owner may see the conversation",
    "base_url": "sends the key and the conversation to a server of its choice",
    "bind_dir": "mounts a folder of this machine",
    "check": "carries source code that no approval covers",
    "container_name": "names a container of this machine's engine",
    "data": "shows files of this machine",
    "default_headers": "changes what is sent with the key",
    "device_requests": "gives the code devices of this machine",
    "docker_host": "names an engine",
    "extra_hosts": "gives hosts other addresses",
    "extra_volumes": "mounts folders of this machine",
    "functions_packages": "installs packages",
    "functions_source": "carries source code that no approval covers",
    "hosts": "names engines",
    "image": "names an image, which can carry code and may be pulled",
    "init_command": "carries a command that no approval covers",
    "languages": "carries commands that no approval covers",
    "organization": "names an organization, which may see the conversation",
    "packages": "installs packages",
    "python": "names a program of this machine",
    "readable": "shows folders of this machine",
    "secrets": "lets the code use secrets of this machine",
    "setup": "carries source code that no approval covers",
    "skills": "shows folders of this machine, and text from them to the model",
    "snapshot": "names a file of this machine",
    "structured_message_factory": "carries a JSON schema; AutoGen evaluates names in it in this process",
    "user": "names a user",
    "work_dir": "names a folder of this machine; pass work_dir= when you load it",
    "write_back": "writes files that programs of this machine act on by themselves",
}
"""Reasons for fields that are not on the list of their component."""

CODE = "carries source code, which loading runs in this process"
PROGRAM = "starts a program on this machine or connects to a server"
UNSANDBOXED = "runs code without this package's sandbox"
REFUSED = {
    "autogen_core.tools.FunctionTool": CODE,
    "autogen_ext.code_executors.docker.DockerCommandLineCodeExecutor": UNSANDBOXED,
    "autogen_ext.code_executors.docker_jupyter.DockerJupyterCodeExecutor": UNSANDBOXED,
    "autogen_ext.code_executors.jupyter.JupyterCodeExecutor": UNSANDBOXED,
    "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor": UNSANDBOXED,
    "autogen_ext.tools.http.HttpTool": "sends requests from this machine",
    "autogen_ext.tools.mcp.McpWorkbench": PROGRAM,
    "autogen_ext.tools.mcp.SseMcpToolAdapter": PROGRAM,
    "autogen_ext.tools.mcp.StdioMcpToolAdapter": PROGRAM,
    "autogen_ext.tools.mcp.StreamableHttpMcpToolAdapter": PROGRAM,
    "codeact_sandbox.McpServer": PROGRAM,
    "autogen_ext.models.openai.AzureOpenAIChatCompletionClient": "sends keys and conversation to a server of its choice",
}
"""Reasons for providers that are not on the list."""

_EXECUTOR = _fields(
    *("delete_tmp_files", "mode", "preload", "split_streams", "checkpoint", "functions_module"),
    allow_pip=_only(False, REASONS["allow_pip"]),
    timeout=_at_most(600),
    limits=_limits,
    environment=_literals,
    tools=Part("tool", many=True),
    approve_tool=Part("tool_policy"),
)
_DOCKER = _fields(
    image=_only(DEFAULT_IMAGE, REASONS["image"]),
    auto_remove=_only(True, "leaves its container behind"),
    stop_container=_only(True, "leaves its container behind"),
    network=_only("none", "gives the code a network"),
    read_only=_only(True, "makes the root file system writable"),
    seccomp=_only("default", "changes which system calls the code may make"),
    runtime=_only(None, "changes what separates the code from this machine"),
    lease=_at_most(60),
)
_CONTEXT = Part("model_context")
_MODEL = Part("model")
_CODER = _fields(
    *("name", "description", "system_message", "supported_languages", "model_client_stream"),
    code_executor=Part("code_executor"),
    model_client=_MODEL,
    model_context=_CONTEXT,
)
_OURS = _fields(
    *("stream_output", "describe_environment", "context_budget"),
    tools=Part("tool", many=True),
    approval_func=Part("tool_policy"),
    approve_tool=Part("tool_policy"),
)
_TEAM = _fields(
    *("name", "description", "max_turns"),
    participants=Part("agent or team", many=True),
    termination_condition=Part("termination"),
)
_EVENTS = _fields("emit_team_events")
_CLIENT = _fields(
    *("max_tokens", "temperature", "top_p", "response_format", "timeout", "model_info", "model_capabilities"),
    max_retries=_at_most(10),
)
_OPENAI = _fields(
    *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "stop", "stream_options", "parallel_tool_calls"),
    *("reasoning_effort", "add_name_prefixes", "include_name_in_message"),
    model=_own_server,
)

ALLOWED: dict[str, Known] = {
    "autogen_codeact.executors.DockerCommandLineCodeExecutor": Known("code_executor", _EXECUTOR | _DOCKER),
    "autogen_codeact.executors.BubblewrapCommandLineCodeExecutor": Known("code_executor", _EXECUTOR),
    "autogen_codeact.executors.AllowTools": Known("tool_policy", _fields("names", otherwise=Part("tool_policy"))),
    "autogen_codeact.executors.Later": Known("tool_policy", {}),
    "autogen_codeact.executors.AskPerson": Known("tool_policy", _fields("timeout")),
    "autogen_codeact.executors.AskModel": Known("tool_policy", _fields("instructions", "timeout", model_client=_MODEL)),
    "autogen_codeact.agents.CodeExecutorAgent": Known(
        "agent", _CODER | _OURS | _fields("sources", max_retries_on_error=_at_most(20))
    ),
    "autogen_codeact.agents.CodeActAgent": Known(
        "agent",
        _CODER
        | _OURS
        | _fields(
            *("prompt_style", "handoffs", "max_tokens", "max_seconds", "max_cost", "prices", "choose", "background"),
            max_steps=_at_most(100),
            attempts=_at_most(8),
            max_output_chars=_at_most(200_000),
        ),
    ),
    "autogen_codeact.teams.RoundRobin": Known("speakers", {}),
    "autogen_codeact.teams.Handoff": Known("speakers", {}),
    "autogen_codeact.teams.Graph": Known("speakers", _fields("graph")),
    "autogen_codeact.teams.Selector": Known(
        "speakers", _fields("allow_repeated", prompt=_template, model_client=_MODEL)
    ),
    "autogen_codeact.teams.Team": Known(
        "team", _TEAM | _EVENTS | _fields("begin_with_first", "budget", speakers=Part("speakers"))
    ),
    "autogen_codeact.teams.FinalWordTermination": Known("termination", _fields("word", "sources", "languages")),
    "autogen_agentchat.agents.AssistantAgent": Known(
        "agent",
        _fields(
            *("name", "handoffs", "description", "system_message", "model_client_stream", "reflect_on_tool_use"),
            *("metadata",),
            max_tool_iterations=_at_most(20),
            tool_call_summary_format=_template,
            tools=Part("tool", many=True),
            workbench=Part("workbench", many=True),
            model_client=_MODEL,
            model_context=_CONTEXT,
        ),
    ),
    "autogen_agentchat.agents.CodeExecutorAgent": Known("agent", _CODER | _fields("sources")),
    "autogen_agentchat.agents.UserProxyAgent": Known("agent", _fields("name", "description")),
    "autogen_agentchat.agents.SocietyOfMindAgent": Known(
        "agent",
        _fields(
            *("name", "description", "instruction", "response_prompt"),
            team=Part("team"),
            model_client=_MODEL,
            model_context=_CONTEXT,
        ),
    ),
    "autogen_agentchat.agents.MessageFilterAgent": Known(
        "agent", _fields("name", "filter", wrapped_agent=Part("agent"))
    ),
    "autogen_agentchat.teams.RoundRobinGroupChat": Known("team", _TEAM | _EVENTS),
    "autogen_agentchat.teams.Swarm": Known("team", _TEAM | _EVENTS),
    "autogen_agentchat.teams.GraphFlow": Known("team", _TEAM | _fields("graph")),
    "autogen_agentchat.teams.SelectorGroupChat": Known(
        "team",
        _TEAM
        | _EVENTS
        | _fields(
            *("allow_repeated_speaker", "model_client_streaming"),
            selector_prompt=_template,
            max_selector_attempts=_at_most(20),
            model_client=_MODEL,
            model_context=_CONTEXT,
        ),
    ),
    "autogen_agentchat.teams.MagenticOneGroupChat": Known(
        "team", _TEAM | _EVENTS | _fields(max_stalls=_at_most(20), final_answer_prompt=_template, model_client=_MODEL)
    ),
    **{
        f"autogen_agentchat.conditions.{name}": Known("termination", _fields(*fields))
        for name, fields in {
            "ExternalTermination": (),
            "FunctionCallTermination": ("function_name",),
            "HandoffTermination": ("target",),
            "MaxMessageTermination": ("max_messages", "include_agent_event"),
            "SourceMatchTermination": ("sources",),
            "StopMessageTermination": (),
            "TextMentionTermination": ("text",),
            "TextMessageTermination": ("source",),
            "TimeoutTermination": ("timeout_seconds",),
            "TokenUsageTermination": ("max_total_token", "max_prompt_token", "max_completion_token"),
        }.items()
    },
    **{
        f"autogen_agentchat.base.{name}": Known("termination", _fields(conditions=Part("termination", many=True)))
        for name in ("AndTerminationCondition", "OrTerminationCondition")
    },
    **{
        f"autogen_core.model_context.{name}": Known("model_context", _fields(*fields, initial_messages=_text_messages))
        for name, fields in {
            "BufferedChatCompletionContext": ("buffer_size",),
            "HeadAndTailChatCompletionContext": ("head_size", "tail_size"),
            "UnboundedChatCompletionContext": (),
        }.items()
    },
    **{
        f"autogen_core.tools.{name}": Known("workbench", _fields(tools=Part("tool", many=True)))
        for name in ("StaticStreamWorkbench", "StaticWorkbench")
    },
    "autogen_ext.models.openai.OpenAIChatCompletionClient": Known("model", _CLIENT | _OPENAI, "OPENAI_API_KEY"),
    "autogen_ext.models.anthropic.AnthropicChatCompletionClient": Known(
        "model", _CLIENT | _fields("model", "top_k", "stop_sequences", "thinking"), "ANTHROPIC_API_KEY"
    ),
    "autogen_ext.models.replay.ReplayChatCompletionClient": Known("model", _fields("chat_completions", "model_info")),
}
"""The components that may be loaded, by provider. None of them runs code of its configuration in this process."""
