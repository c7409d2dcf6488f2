"""The programs on the page of `agent-framework-hyperlight` that use its provider, with only the import changed."""

import ast
import importlib.metadata
import inspect
import re

import pytest
from scripted import call, tool_results

PAGE = importlib.metadata.metadata("agent-framework-hyperlight").get_payload()
SECTIONS = {text.partition("\n")[0]: text for text in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)}
CODE = "total = call_tool('compute', operation='multiply', a=6, b=7)\nprint(total, compute('add', 1, 2))"


def program_of(heading):
    return SECTIONS[heading].split("```python\n")[1].split("```")[0]


async def run(program, client):
    """Run a program whose `client` is defined before it; return its variables."""
    program = program.replace(
        "from agent_framework_hyperlight import HyperlightCodeActProvider",
        "from codeact_sandbox.integrations.agent_framework import CodeactProvider as HyperlightCodeActProvider",
    )
    names = {"client": client, "__name__": "program"}
    code = compile(program, "program", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    done = eval(code, names)
    if inspect.isawaitable(done):
        await done
    return names


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_context_provider(engine, serve, connect):
    server = serve([call("execute_code", code=CODE), "6 times 7 is 42."])
    names = await run(program_of("Context provider (recommended)"), connect(server))
    assert names["result"].text == "6 times 7 is 42."
    assert tool_results(server) == ["42.0 3.0"]
    (shown,) = server.requests[0]["tools"]
    assert shown["function"]["name"] == "execute_code"
    assert "def compute(operation: str, a: float, b: float) -> float:" in shown["function"]["description"]
    await names["codeact"].close()


@pytest.mark.xfail(
    raises=ImportError, strict=True, reason="`FileMount`: folders are `data=` and `work_dir=`, domains `allow_domains=`"
)
async def test_file_mounts_and_network_access():
    await run(program_of("File mounts and network access"), None)
