"""A stand-in for the sandbox: stubs run in a module of this process, and each call goes through JSON to its tool and back."""

import asyncio
import json
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from codeact_sandbox.tools.stub import sources
from codeact_sandbox.types.tool import HostToolProtocol, ToolAnswer

MODULE = "host_tools_of_a_test"


class StubHost:
    """Runs code that uses the stubs."""

    def __init__(self, tools: Sequence[HostToolProtocol]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[ToolAnswer] = []
        self.module = types.ModuleType(MODULE)

    async def run(self, code: str | Callable[[Any], Any]) -> Any:
        """Run code."""
        loop = asyncio.get_running_loop()

        def call(name: str, arguments: dict[str, Any]) -> Any:
            arguments = json.loads(json.dumps(arguments))
            self.calls.append((name, arguments))
            running = self.tools[name].run(arguments)
            answer = asyncio.run_coroutine_threadsafe(running, loop).result(30)
            self.answers.append(answer)
            return json.loads(json.dumps(answer.value))

        def work() -> Any:
            sys.modules[MODULE] = self.module
            vars(self.module)["_call"] = call
            try:
                for name, source in sources(list(self.tools.values())):
                    if isinstance(source, str):
                        exec(compile(source, f"<{name}>", "exec"), vars(self.module))
                    else:
                        vars(self.module)["_define"](name, json.loads(json.dumps(source)))
                return eval(code, vars(self.module)) if isinstance(code, str) else code(self.module)
            finally:
                del sys.modules[MODULE]

        return await asyncio.to_thread(work)
