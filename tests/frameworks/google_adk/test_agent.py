"""An agent of Google ADK with a scripted model, whose code runs in a sandbox."""

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field
from scripted import FIGURE, price, program

from codeact_sandbox.integrations.google_adk import CodeactCodeExecutor


class Scripted(BaseLlm):
    answers: list[str]
    requests: list = Field(default_factory=list)

    async def generate_content_async(self, llm_request, stream=False):
        self.requests.append(llm_request.model_copy(deep=True))
        part = types.Part(text=self.answers[len(self.requests) - 1])
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def code(text):
    return f"```python\n{text}\n```"


async def events_of(agent, task):
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=task)])
    return [each async for each in runner.run_async(user_id="user", session_id=session.id, new_message=message)]


async def test_an_agent_keeps_variables_calls_tools_and_survives_a_timeout(engine, tmp_path):
    model = Scripted(
        model="scripted",
        answers=[
            code("cost = 2 * price('tea')\nprint(cost)"),
            code("while True: pass"),
            code("open('cost.txt', 'w').write(str(cost))\nprint(cost)"),
            code(FIGURE),
            "It costs 9.0.",
        ],
    )
    options = {"backend": engine, "tools": [price], "timeout": 3, "work_dir": tmp_path}
    executor = CodeactCodeExecutor(options=options)
    try:
        events = await events_of(LlmAgent(name="coder", model=model, code_executor=executor), "What do two teas cost?")
    finally:
        executor.close()
    said = "\n".join(
        str(part.text or (part.code_execution_result and part.code_execution_result.output))
        for event in events
        for part in (event.content.parts if event.content and event.content.parts else [])
    )
    assert "9.0" in said
    assert "stopped after 3 s" in said
    assert said.endswith("It costs 9.0.")
    assert (tmp_path / "cost.txt").read_text() == "9.0"
    assert [name for event in events for name in event.actions.artifact_delta if name.endswith(".png")]


@pytest.mark.usefixtures("engine")
async def test_the_agent_of_the_page_runs():
    names = {}
    exec(program("Google ADK"), names)
    agent = names["agent"]
    agent.model = Scripted(model="scripted", answers=[code("print(2**100)"), "It is 1267650600228229401496703205376."])
    try:
        events = await events_of(agent, "What is 2**100?")
    finally:
        agent.code_executor.close()
    assert events[-1].content.parts[0].text == "It is 1267650600228229401496703205376."
