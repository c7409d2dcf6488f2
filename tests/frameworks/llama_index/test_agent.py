"""A `CodeActAgent` of LlamaIndex, whose code runs in a sandbox."""

import pytest
from llama_index.core.agent.workflow import CodeActAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from scripted import FIGURE, price, run_program

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.llama_index import code_execute_fn


def code(text):
    return f"<execute>\n{text}\n</execute>"


async def test_an_agent_keeps_variables_calls_tools_and_survives_a_timeout(engine, serve, tmp_path):
    server = serve(
        [
            code("cost = 2 * price('tea')\nprint(cost)"),
            code("while True: pass"),
            code("open('cost.txt', 'w').write(str(cost))\nprint(cost)"),
            code(FIGURE),
            "It costs 9.0.",
        ]
    )
    model = OpenAILike("scripted", api_base=server.base_url, api_key="none", is_chat_model=True, context_window=100_000)
    async with AsyncSandbox(engine, tools=[price], timeout=3, work_dir=tmp_path) as box:
        agent = CodeActAgent(code_execute_fn=code_execute_fn(box), llm=model, tools=[price])
        answer = await agent.run("What do two teas cost?", ctx=Context(agent))
    assert str(answer) == "It costs 9.0."
    said = "\n".join(str(message["content"]) for message in server.requests[-1]["messages"])
    assert "def price(item: str) -> float:" in said
    assert "stopped after 3 s" in said
    assert "9.0\nChanged files:\ncost.txt" in said
    assert "figure-1.png" in said
    assert (tmp_path / "cost.txt").read_text() == "9.0"


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([code("print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("LlamaIndex", server, tmp_path) == "It is 1267650600228229401496703205376.\n"
