"""An agent of Agent Framework, with its real client for OpenAI, whose code runs in a sandbox."""

import agent_framework as af
import pytest
from scripted import FIGURE, call, run_program, sandboxes, tool_results

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.agent_framework import CodeactProvider, CodeactScriptRunner


def price(item: str) -> float:
    """Return the price of an item."""
    return {"tea": 4.5}[item]


def execute(code):
    return call("execute_code", code=code)


@pytest.fixture
def agent_of(connect):
    return lambda server, provider: af.Agent(connect(server), context_providers=[provider])


async def test_an_agent_keeps_variables_calls_tools_and_survives_a_timeout(engine, serve, agent_of, tmp_path):
    server = serve(
        [
            execute("cost = 2 * price('tea')"),
            execute("while True: pass"),
            execute("open('cost.txt', 'w').write(str(cost))\nprint(cost)"),
            execute(FIGURE),
            "It costs 9.0.",
        ]
    )
    provider = CodeactProvider(tools=price, backend=engine, timeout=10, work_dir=tmp_path)
    answer = await agent_of(server, provider).run("What do two teas cost?")
    assert answer.text == "It costs 9.0."
    first, late, printed, figure = tool_results(server)[:4]
    assert first == "The code printed nothing."
    assert "stopped after 10 s" in late
    assert printed == "9.0\nChanged files:\ncost.txt"
    images = [each for message in answer.messages for content in message.contents for each in content.items or []]
    assert [each.media_type for each in images if each.type == "data"] == ["image/png"], figure
    assert (tmp_path / "cost.txt").read_text() == "9.0"
    await provider.close()
    assert sandboxes() == []


async def test_sessions_have_sandboxes_of_their_own_and_tools_can_be_added(engine, serve, agent_of):
    server = serve(
        [execute("x = 1"), "one", execute("print('x' in globals())"), "two", execute("print(x, twice(21))"), "three"]
    )
    provider = CodeactProvider(backend=engine)
    agent = agent_of(server, provider)
    one, other = agent.create_session(), agent.create_session()
    await agent.run("Begin.", session=one)
    await agent.run("Look.", session=other)
    assert tool_results(server) == ["False"]

    @af.tool(description="Double it.")
    def twice(number: int) -> int:
        return 2 * number

    provider.add_tools(twice)
    assert [each.name for each in provider.get_tools()] == ["twice"]
    await agent.run("Go on.", session=one)
    assert tool_results(server)[-1] == "1 42"
    assert "Double it." in server.requests[-1]["tools"][0]["function"]["description"]
    await provider.close()


@pytest.mark.parametrize("engine", ["bubblewrap"], indirect=True)
async def test_code_needs_approval_if_a_tool_does(engine, serve, agent_of):
    server = serve([execute("print(delete('a'))"), "Deleted."])
    deleted = []

    @af.tool(approval_mode="always_require")
    def delete(name: str) -> str:
        """Delete a record."""
        deleted.append(name)
        return f"{name} is gone"

    provider = CodeactProvider(tools=[delete], backend=engine)
    agent = agent_of(server, provider)
    session = agent.create_session()
    asked = await agent.run("Delete a.", session=session)
    (request,) = asked.user_input_requests
    assert (request.function_call.name, deleted) == ("execute_code", [])
    answer = await agent.run(
        af.Message("user", [request.to_function_approval_response(approved=True)]), session=session
    )
    assert (answer.text, deleted, tool_results(server)) == ("Deleted.", ["a"], ["a is gone"])
    await provider.close()


@pytest.mark.parametrize("engine", ["bubblewrap"], indirect=True)
async def test_tools_that_only_have_a_schema_are_functions_too(engine, serve, agent_of):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = af.FunctionTool(
        name="get-weather",
        description="Weather.",
        func=lambda **given: {"sunny": given["city"] == "Rome"},
        input_model=schema,
    )
    server = serve([execute("print(get_weather(city='Rome')['sunny'])\nget_weather(town='Rome')"), "Sunny."])
    provider = CodeactProvider(tools=[weather], backend=engine)
    assert (await agent_of(server, provider).run("Is it sunny?")).text == "Sunny."
    (said,) = tool_results(server)
    assert said.startswith("True\n")
    assert "city" in said
    await provider.close()


async def test_scripts_of_skills_run_in_the_sandbox(engine, serve, agent_of, tmp_path):
    folder = tmp_path / "adder"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: adder\ndescription: Adds numbers.\n---\nRun scripts/add.py with numbers.\n"
    )
    (folder / "scripts" / "add.py").write_text("import os, sys\nprint(sum(map(int, sys.argv[1:])), os.getcwd())\n")
    server = serve(
        [
            call("run_skill_script", skill_name="adder", script_name="scripts/add.py", args=["20", "22"]),
            call("run_skill_script", skill_name="adder", script_name="scripts/add.py", args=["x"]),
            "It is 42.",
        ]
    )
    async with AsyncSandbox(engine, timeout=20) as box:
        runner = CodeactScriptRunner(box)
        skills = af.SkillsProvider.from_paths(tmp_path, script_runner=runner, disable_run_skill_script_approval=True)
        assert (await agent_of(server, skills).run("What is 20 + 22?")).text == "It is 42."
    added, failed = tool_results(server)
    assert added == "42 /workspace/skills/adder\n"
    assert "ValueError" in failed
    assert failed.endswith("The script failed: exit code 1.")


def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([execute("print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("Agent Framework", server, tmp_path) == "It is 1267650600228229401496703205376.\n"
