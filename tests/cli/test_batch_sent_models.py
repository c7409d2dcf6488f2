"""The model of `codeact batch` when it is opened in another process than that of the command, as on the nodes of Ray."""

import json
import pickle
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from autogen_codeact.batch import BatchSettings, run_batch
from autogen_codeact.cli.agent_choice import AgentChoice
from autogen_codeact.cli.batch_input import AgentMaker, for_nodes
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.usefixtures("bubblewrap")

KEY, NODES_KEY = "sk-of-the-command", "sk-of-the-node"
INFO = {
    "vision": False,
    "function_calling": False,
    "json_output": True,
    "family": "unknown",
    "structured_output": False,
}


def component(server, **config):
    config = {"model": "scripted", "base_url": server.base_url, "model_info": INFO, "max_retries": 0} | config
    return json.dumps({"provider": "autogen_ext.models.openai.OpenAIChatCompletionClient", "config": config})


@contextmanager
def serving(reply):
    with OpenAIServer(lambda _: reply) as server:
        yield server


@pytest.fixture
def server():
    with serving("It is 4.") as made:
        yield made


async def answers_elsewhere(model, tmp_path, monkeypatch, file=None, **variables):
    """Send a model in an environment with the variables, and run two tasks without them and without its file."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    maker = AgentMaker(AgentChoice(act=True), model)
    sent = pickle.dumps(maker)
    assert all(value not in repr((maker, vars(maker))) for value in variables.values())
    for name in variables:
        monkeypatch.delenv(name)
    if file is not None:
        file.unlink()
    monkeypatch.setenv("OPENAI_API_KEY", NODES_KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    received = pickle.loads(sent)
    rows = run_batch(
        received,
        ["one", "two"],
        settings=BatchSettings(concurrency=1),
        out=tmp_path / "out",
        configuration={"model": "sent"},
        sandbox="bubblewrap",
    )
    async with aclosing(rows):
        found = [row async for row in rows]
    await received.close()
    return found


async def test_key_and_address_are_those_of_the_command(server, tmp_path, monkeypatch):
    variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
    found = await answers_elsewhere(ModelChoice("scripted"), tmp_path, monkeypatch, **variables)
    assert [(row.answer, row.error) for row in found] == [("It is 4.", None)] * 2
    assert server.authorizations == [f"Bearer {KEY}"] * 2


async def test_file_of_a_component_is_sent_with_the_key(server, tmp_path, monkeypatch):
    file = tmp_path / "model.json"
    file.write_text(component(server))
    found = await answers_elsewhere(ModelChoice(str(file)), tmp_path, monkeypatch, file, OPENAI_API_KEY=KEY)
    assert [row.answer for row in found] == ["It is 4."] * 2
    assert server.authorizations == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize(
    ("recording", "wanted"),
    [
        (["It is 4."], {"1": "It is 4.", "2": "It is 4."}),
        ({"tasks": {"1": ["One."], "2": ["Two."]}}, {"1": "One.", "2": "Two."}),
    ],
)
async def test_recording_is_sent(recording, wanted, tmp_path, monkeypatch):
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(recording))
    found = await answers_elsewhere(ModelChoice(f"replay:{file}"), tmp_path, monkeypatch, file)
    assert {row.id: row.answer for row in found} == wanted


@pytest.mark.parametrize("in_file", [False, True])
async def test_errors_that_quote_the_key_lose_it_on_a_node(in_file, tmp_path, monkeypatch):
    with serving(Reply(f"no such key: {KEY}", status=401)) as server:
        file = tmp_path / "model.json"
        file.write_text(component(server, api_key=KEY))
        model = ModelChoice(str(file)) if in_file else ModelChoice("m", server.base_url, "MY_KEY")
        variables = {} if in_file else {"MY_KEY": KEY}
        found = await answers_elsewhere(model, tmp_path, monkeypatch, file, **variables)
    assert server.authorizations == [f"Bearer {KEY}"] * 2
    assert [row.error_class for row in found] == ["AuthenticationError"] * 2
    assert all("no such key: ***" in row.error for row in found)
    texts = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(texts) > 4
    assert not any(KEY.encode() in text for text in texts)


def test_file_that_is_not_there_can_not_be_sent(tmp_path):
    maker = AgentMaker(AgentChoice(), ModelChoice(f"replay:{tmp_path / 'none.json'}"))
    with pytest.raises(CommandError, match=r"none\.json can't be read: No such file or directory$"):
        pickle.dumps(maker)


def test_options_of_sandboxes_mean_the_same_on_nodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIVEN", "value")
    choice = SandboxChoice(data=(Path("table.csv"),), environment=("GIVEN", "MODE=fast"), memory="1g")
    options = for_nodes(choice.options())
    assert options["data"] == [tmp_path / "table.csv"]
    assert options["environment"] == {"GIVEN": "value", "MODE": "fast"}
    assert {**choice.options(), **{name: options[name] for name in ("data", "environment")}} == options
    monkeypatch.delenv("GIVEN")
    with pytest.raises(
        ValueError, match=r"^The sandbox's environment refers to variables that are not set on this host: GIVEN"
    ):
        for_nodes(choice.options())
