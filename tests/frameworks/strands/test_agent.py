"""An agent of Strands, whose tools use a sandbox."""

import pytest
from scripted import FIGURE, call, price, run_program, tool_results
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.sandbox import ExecutionResult, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.strands import CodeactSandbox


@tool(context=True)
async def run_code(code: str, tool_context: ToolContext) -> str:
    """Run Python code.

    Args:
        code: The code.
    """
    done = await tool_context.agent.sandbox.execute_code(code, "python")
    return f"{done.exit_code}: {done.stdout}{done.stderr}{[file.name for file in done.output_files]}"


async def test_an_agent_keeps_variables_calls_tools_and_survives_a_timeout(engine, serve, tmp_path):
    server = serve(
        [
            call("run_code", code="cost = 2 * price('tea')"),
            call("run_code", code="while True: pass"),
            call("run_code", code="open('cost.txt', 'w').write(str(cost))\nprint(cost)"),
            call("run_code", code=FIGURE),
            "It costs 9.0.",
        ]
    )
    model = OpenAIModel(client_args={"base_url": server.base_url, "api_key": "none"}, model_id="scripted")
    async with AsyncSandbox(engine, tools=[price], timeout=3, work_dir=tmp_path) as box:
        agent = Agent(model=model, tools=[run_code], sandbox=CodeactSandbox(box), callback_handler=None)
        answer = await agent.invoke_async("What do two teas cost?")
    assert str(answer).strip() == "It costs 9.0."
    first, late, printed, figure = map(str, tool_results(server))
    assert "0: The code printed nothing.[]" in first
    assert "timed out after" in late
    assert "0: 9.0" in printed
    assert "figure-1.png" in figure
    assert (tmp_path / "cost.txt").read_text() == "9.0"


async def test_commands_and_files_are_those_of_the_sandbox(engine):
    async with AsyncSandbox(engine, timeout=10) as box:
        place = CodeactSandbox(box)
        items = [item async for item in place.execute_streaming("echo out; echo err >&2; exit 3", env={"A": "b"})]
        assert isinstance(items[-1], ExecutionResult)
        assert (items[-1].exit_code, items[-1].stdout, items[-1].stderr) == (3, "out\n", "err\n")
        assert sorted((each.stream_type, each.data) for each in items if isinstance(each, StreamChunk)) == [
            ("stderr", "err\n"),
            ("stdout", "out\n"),
        ]
        assert (await place.execute_code("print(6 * 7)", "python3", cwd="/tmp")).stdout == "42\n"
        assert (await place.execute_code("echo $A", "sh", env={"A": "b"})).stdout == "b\n"
        await place.write_file("folder/a.txt", b"text")
        assert await place.read_text("folder/a.txt") == "text"
        assert [(each.name, each.is_dir, each.size) for each in await place.list_files("folder")] == [
            ("a.txt", False, 4)
        ]
        await place.remove_file("folder/a.txt")
        for missing in (place.read_file("folder/a.txt"), place.remove_file("folder/a.txt")):
            with pytest.raises(FileNotFoundError):
                await missing
        with pytest.raises(SandboxPathNotFoundError):
            await place.list_files("nothing")
        with pytest.raises(SandboxTimeoutError) as caught:
            await place.execute("echo begun; sleep 60", timeout=1)
        assert caught.value.stdout == "begun\n"


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([call("run_code", code="print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("Strands Agents", server, tmp_path) == "It is 1267650600228229401496703205376.\n\n"
