"""An agent of pydantic-ai, with its real client for OpenAI, in a sandbox."""

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.workspaces import WorkspaceOutputLimitError, WorkspaceUnavailableError
from scripted import FIGURE, call, price, run_program, tool_results

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.pydantic_ai import CodeactWorkspace


def agent_of(server, workspace):
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=server.base_url, api_key="none"))
    return Agent(model, tools=[workspace.run_code])


async def test_an_agent_runs_code_and_commands_in_its_workspace(engine, serve, tmp_path):
    server = serve(
        [
            call("run_code", code="cost = 2 * price('tea')"),
            call("run_code", code="while True: pass"),
            call("run_code", code="open('cost.txt', 'w').write(str(cost))\nprint(cost)"),
            call("shell", command="cat cost.txt; echo; ls nothing"),
            call("run_code", code=FIGURE),
            "It costs 9.0.",
        ]
    )
    async with AsyncSandbox(engine, tools=[price], timeout=3, work_dir=tmp_path) as box:
        workspace = CodeactWorkspace(box)
        agent = agent_of(server, workspace)

        @agent.tool
        async def shell(ctx: RunContext[None], command: str) -> str:
            done = await ctx.workspace.run(command, shell=True)
            return f"{done.exit_code}: {done.stdout}{done.stderr}"

        done = await agent.run("What do two teas cost?", workspace=workspace)
        assert done.output == "It costs 9.0."
        assert workspace.ref.provider == "codeact-sandbox"
    first, late, printed, listed, figure = tool_results(server)
    assert first == "The code printed nothing."
    assert "Timeout" in late
    assert "exit code 124" in late
    assert printed == "9.0\nChanged files:\ncost.txt"
    assert listed == "2: 9.0\nls: cannot access 'nothing': No such file or directory\n"
    assert figure.endswith("Changed files:\nfigure-1.png")
    content = server.requests[-1]["messages"][-1]["content"]
    images = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    assert [image[:22] for image in images] == ["data:image/png;base64,"]
    assert (tmp_path / "cost.txt").read_text() == "9.0"


async def test_what_does_not_fit_and_what_has_ended_are_errors_of_the_framework(engine):
    box = AsyncSandbox(engine, output=10_000)
    workspace = CodeactWorkspace(box)
    try:
        with pytest.raises(WorkspaceOutputLimitError, match="bytes of it were dropped") as caught:
            await workspace.run("seq 100000", shell=True)
        assert caught.value.stdout.startswith("1\n2\n")
        await box.restart()
        with pytest.raises(WorkspaceUnavailableError, match="has ended: make another one"):
            await workspace.run(["true"])
    finally:
        await box.stop()
    with pytest.raises(WorkspaceUnavailableError, match="has ended: make another one"):
        await workspace.run_code("1")


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([call("run_code", code="print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("pydantic-ai", server, tmp_path) == "It is 1267650600228229401496703205376.\n"
    assert tool_results(server) == ["1267650600228229401496703205376"]
