"""Microsoft Agent Framework: code in a sandbox for its agents (CodeAct), and a runner of the scripts of skills."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import agent_framework as af

from codeact_sandbox import AsyncSandbox, HostTool
from codeact_sandbox.integrations.answers import answer_of
from codeact_sandbox.tools.answers import to_answer
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.search import are_many, described

Tools = Callable[..., Any] | Sequence[Callable[..., Any]] | None
# Sandboxes that are alive; the one that was not used for the longest time is stopped for another one.
MAX_SANDBOXES = 16
INSTRUCTIONS = """Use the tool execute_code to compute, to work with files, and to call the functions that its description lists.
Variables stay from call to call. Print what you need to see. Prefer one call that does all."""
DESCRIPTION = (
    "Run Python in a live interpreter, in a sandbox; figures are shown. Code can call these functions, if any:"
)
MANY = '`search_tools("what is wanted", limit=5)` finds functions; print what it returns.'
CALL_TOOL = "def call_tool(name, /, **arguments):\n    return eval(name)(**arguments)"
COMMANDS = {".py": ["python3"], ".sh": ["sh"], ".js": ["node"]}


class CodeactProvider(af.ContextProvider):
    """Gives an agent the tool `execute_code`: `Agent(client, context_providers=[CodeactProvider(tools=[price])])`.

    Code calls the tools as functions, or as `call_tool("price", item="tea")`; the model does not see them as tools. Each session
    has a sandbox of its own, whose variables and files stay. They end with the process, or with `close()`.

    Args:
        source_id: Its name among the providers of the agent. Default: "codeact".
        tools: Functions, or tools of the framework. If one needs approval, so does `execute_code`.
        approval_mode: "always_require" asks before each `execute_code`. Default: only if a tool needs it.
        options: Arguments of `AsyncSandbox`, such as `work_dir="out"`, `data=["in"]`, `allow_domains=["api.example.com"]`.
    """

    DEFAULT_SOURCE_ID = "codeact"

    def __init__(
        self, source_id: str = DEFAULT_SOURCE_ID, *, tools: Tools = None, approval_mode: Any = None, **options: Any
    ) -> None:
        super().__init__(source_id)
        self._approval_mode = approval_mode
        self._options = options
        self._tools: dict[str, af.FunctionTool] = {}
        self._sandboxes: OrderedDict[str | None, AsyncSandbox] = OrderedDict()
        self.add_tools(tools)

    def add_tools(self, tools: Tools) -> None:
        """Let code call more functions, from the next run on."""
        made = [each for each in af.normalize_tools(tools) if isinstance(each, af.FunctionTool)]
        self._tools |= {each.name: each for each in made}
        for box in self._sandboxes.values():
            box.add_tools([_host_tool(each) for each in made])

    def get_tools(self) -> list[af.FunctionTool]:
        return list(self._tools.values())

    async def before_run(
        self, *, agent: Any, session: af.AgentSession | None, context: af.SessionContext, state: dict[str, Any]
    ) -> None:
        """Add the tool `execute_code` and its instructions to a run."""
        box = await self._sandbox(session.session_id if session is not None else None)
        tools = await box.list_tools()
        listed = [MANY] if are_many(tools) else [described(each) for each in tools]
        asks = any(each.approval_mode == "always_require" for each in self._tools.values())
        execute = af.FunctionTool(
            name="execute_code",
            description="\n\n".join([DESCRIPTION, *listed]),
            func=functools.partial(_execute, box),
            input_model={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
            approval_mode="always_require" if asks else self._approval_mode,
        )
        context.extend_instructions(self.source_id, INSTRUCTIONS)
        context.extend_tools(self.source_id, [execute])

    async def _sandbox(self, session: str | None) -> AsyncSandbox:
        box = self._sandboxes.pop(session, None)
        if box is None:
            box = AsyncSandbox(tools=[_host_tool(each) for each in self._tools.values()], **self._options)
        self._sandboxes[session] = box
        if len(self._sandboxes) > MAX_SANDBOXES:
            await self._sandboxes.popitem(last=False)[1].stop()
        return box

    async def close(self) -> None:
        while self._sandboxes:
            await self._sandboxes.popitem()[1].stop()


class CodeactScriptRunner:
    """Runs the scripts of skills in a sandbox: `SkillsProvider.from_paths(folder, script_runner=CodeactScriptRunner(box))`.

    Args:
        sandbox: It starts with the first script; who made it stops it. A skill's folder is copied to `skills/` in its workspace.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    async def __call__(
        self, skill: af.FileSkill, script: af.FileSkillScript, args: Mapping[str, Any] | Sequence[str] | None = None
    ) -> str:
        """Run a script in the skill's folder; a mapping becomes options (`--name value`). Return what it prints."""
        path, source = Path(script.full_path), Path(skill.path)
        folder = f"skills/{source.name}"
        await self.sandbox.put(source, folder)
        pairs = args.items() if isinstance(args, Mapping) else ()
        words = [each for name, value in pairs for each in (f"--{name}", str(value))] or list(map(str, args or ()))
        program = [*COMMANDS.get(path.suffix, []), f"./{path.relative_to(source).as_posix()}"]
        done = await self.sandbox.exec([*program, *words], cwd=folder)
        failed = "" if done.exit_code == 0 else f"\nThe script failed: exit code {done.exit_code}."
        return f"{done.stdout}{done.stderr}{failed}" or "The script printed nothing."


async def _execute(box: AsyncSandbox, code: str) -> list[af.Content]:
    if "call_tool" in code:
        await box.run(CALL_TOOL)
    text, images = await asyncio.to_thread(answer_of, await box.run(code))
    return [af.Content.from_text(text), *(af.Content.from_data(data, media_type) for data, media_type in images)]


def _host_tool(tool: af.FunctionTool) -> Any:
    """Make a host tool: with the annotations of the function if it has the parameters of the tool, else with their schema."""

    async def call(**arguments: Any) -> Any:
        return await tool.invoke(arguments=arguments, skip_parsing=True)

    shown = inspect.signature(tool.func).parameters if tool.func is not None else {}
    if tool.parameters().get("properties", {}).keys() == shown.keys():
        named = functools.wraps(tool.func)(call)
        named.__name__, named.__doc__ = tool.name, tool.description
        return HostTool(named)

    async def answer(arguments: Mapping[str, Any]) -> Any:
        return to_answer(await call(**arguments), tool.name)

    return SchemaHostTool(tool.name, tool.description, tool.parameters(), answer, "Agent Framework")
