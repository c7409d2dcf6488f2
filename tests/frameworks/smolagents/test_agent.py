"""A `CodeAgent` of smolagents, with its real client for OpenAI, whose code runs in a sandbox."""

import pytest
from PIL import Image
from scripted import FIGURE, run_program
from smolagents import CodeAgent, OpenAIServerModel, tool
from smolagents.utils import AgentError

from codeact_sandbox import Sandbox
from codeact_sandbox.integrations.smolagents import CodeactExecutor


@tool
def price(item: str) -> float:
    """Return the price of an item.

    Args:
        item: The item.
    """
    return {"tea": 4.5}[item]


def code(text):
    return f"<code>\n{text}\n</code>"


def outputs(server):
    """What the model was told after each step."""
    messages = server.requests[-1]["messages"]
    texts = ["".join(part.get("text", "") for part in each["content"]) for each in messages if each["role"] == "user"]
    return texts[1:]


def test_an_agent_keeps_variables_calls_tools_and_survives_a_timeout(engine, serve, tmp_path):
    server = serve(
        [
            code("cost = 2 * price('tea')\nprint(cost)"),
            code("while True: pass"),
            code("open('cost.txt', 'w').write(str(cost))"),
            code("print(price(item='nothing'))"),
            code("final_answer({'cost': cost})"),
        ]
    )
    model = OpenAIServerModel("scripted", api_base=server.base_url, api_key="none")
    executor = CodeactExecutor(Sandbox(engine, timeout=3, work_dir=tmp_path))
    with CodeAgent([price], model, executor=executor, verbosity_level=0) as agent:
        assert agent.run("What do two teas cost?") == {"cost": 9.0}
    said = outputs(server)
    assert "9.0" in said[0]
    assert "stopped after 3 s" in said[1]
    assert "KeyError: nothing" in said[3]
    assert (tmp_path / "cost.txt").read_text() == "9.0"


def test_the_model_sees_figures(engine, serve):
    server = serve([code(FIGURE), code("final_answer('seen')")])
    model = OpenAIServerModel("scripted", api_base=server.base_url, api_key="none")
    executor = CodeactExecutor(Sandbox(engine))
    with CodeAgent([], model, executor=executor, step_callbacks=[executor.show_figures], verbosity_level=0) as agent:
        assert agent.run("Draw.") == "seen"
    content = server.requests[-1]["messages"][-1]["content"]
    assert [part["type"] for part in content if part["type"] != "text"] == ["image_url"]


def test_the_executor_is_one_of_smolagents(engine):
    executor = CodeactExecutor(Sandbox(engine))
    try:
        executor.send_tools({"double": lambda value: value * 2, "final_answer": lambda value: value})
        executor.send_variables({"number": 20, "picture": Image.new("RGB", (2, 3)), "some": {1, 2}})
        done = executor("print('text')\ndouble(number) + 2")
        assert (done.output, done.logs, done.is_final_answer) == (42, "text\n42", False)
        assert executor("picture.size if hasattr(picture, 'size') else picture").output is not None
        assert executor("sorted(some)").output == [1, 2]
        final = executor("try:\n    final_answer(number)\nexcept Exception:\n    print('caught')\nprint('not reached')")
        assert (final.output, final.is_final_answer) == (20, True)
        with pytest.raises(AgentError, match="ZeroDivisionError"):
            executor("1 / 0")
        assert executor("number").output == 20
    finally:
        executor.cleanup()


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([code("final_answer(2**100)")])
    assert run_program("smolagents", server, tmp_path) == "1267650600228229401496703205376\n"
