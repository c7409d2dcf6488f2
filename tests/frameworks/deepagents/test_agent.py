"""A deep agent, with its real client for OpenAI, in a sandbox."""

from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI
from scripted import FIGURE, call, price, run_program, tool_results

from codeact_sandbox import Sandbox
from codeact_sandbox.integrations.deepagents import CodeactBackend

SHAPES = ("circle", "square", "cube", "cone", "ring", "disc", "star")
PROJECT = {
    **{f"shapes/{name}.py": f"def sides():\n    return {number}\n" for number, name in enumerate(SHAPES)},
    "shapes/__init__.py": "",
    "count.py": "from shapes import cube, square\n\n\ndef total():\n    return cube.sides() - square.sides()\n",
    "test_count.py": "import count\n\nassert count.total() == 3, count.total()\nprint('passed')\n",
}


def results_of(server, backend, task):
    model = ChatOpenAI(model="scripted", base_url=server.base_url, api_key="none")
    agent = create_deep_agent(model, tools=[backend.run_code], backend=backend)
    state = agent.invoke({"messages": [("user", task)]})
    return state["messages"][-1].content, tool_results(server)


def test_an_agent_edits_and_runs_a_project_of_ten_files(engine, serve, tmp_path):
    assert len(PROJECT) == 10
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    server = serve(
        [
            call("ls", path="/workspace"),
            call("glob", pattern="**/*.py", path="/workspace/shapes"),
            call("execute", command="python3 test_count.py"),
            call("grep", pattern="square", path="/workspace", output_mode="content"),
            call("read_file", file_path="/workspace/count.py"),
            call(
                "edit_file",
                file_path="/workspace/count.py",
                old_string="sides() - square",
                new_string="sides() + square",
            ),
            call("write_file", file_path="/workspace/docs/notes.txt", content="total adds up\n"),
            call("execute", command="python3 test_count.py"),
            "The sign was wrong.",
        ]
    )
    with Sandbox(engine, work_dir=tmp_path) as box:
        answer, results = results_of(server, CodeactBackend(box), "Make the test pass.")
    assert answer == "The sign was wrong."
    listed, found, failed, grepped, read, edited, written, passed = results
    assert all(name in listed for name in ("count.py", "test_count.py", "shapes"))
    assert all(f"/workspace/shapes/{name}.py" in found for name in SHAPES)
    assert "AssertionError: 1" in failed
    assert "exit code 1" in failed
    assert "/workspace/count.py" in grepped
    assert "return cube.sides() - square.sides()" in read
    assert "Successfully replaced 1 instance" in edited
    assert "/workspace/docs/notes.txt" in written
    assert passed.startswith("passed")
    assert "cube.sides() + square.sides()" in (tmp_path / "count.py").read_text()
    assert (tmp_path / "docs/notes.txt").read_text() == "total adds up\n"


def test_an_agent_runs_code_whose_variables_stay(engine, serve):
    server = serve(
        [
            call("run_code", code="cost = 2 * price('tea')"),
            call("run_code", code="while True: pass"),
            call("execute", command="sleep 60", timeout=1),
            call("run_code", code="print(cost)"),
            call("run_code", code=FIGURE),
            "Done.",
        ]
    )
    with Sandbox(engine, tools=[price], timeout=3) as box:
        answer, results = results_of(server, CodeactBackend(box), "What do two teas cost?")
    first, late, killed, printed, figure = results
    assert (answer, first, printed) == ("Done.", "The code printed nothing.", "9.0")
    assert "exit code 124" in late
    assert "The command was killed after 1 s." in killed
    assert [part["type"] for part in figure] == ["text", "image_url"]


def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([call("run_code", code="print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("deepagents", server, tmp_path) == "It is 1267650600228229401496703205376.\n"
    assert tool_results(server) == ["1267650600228229401496703205376"]
