import openai
import pytest
from agent_framework.openai import OpenAIChatCompletionClient


@pytest.fixture
async def connect():
    """Return a function that makes the framework's client of a model server; it is closed after the test."""
    made = []

    def client(server):
        made.append(openai.AsyncOpenAI(base_url=server.base_url, api_key="none"))
        return OpenAIChatCompletionClient(model="scripted", async_client=made[-1])

    yield client
    for each in made:
        await each.close()
