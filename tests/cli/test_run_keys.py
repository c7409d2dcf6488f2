"""Keys are read from the environment and never shown."""

import json

import pytest

from tests.cli.support import code, codeact, in_bubblewrap
from tests.openai_server import OpenAIServer, Reply

SECRET = "sk-do-not-show-me-0123456789"


@pytest.fixture
def server():
    running = OpenAIServer([]).start()
    yield running
    running.stop()


@pytest.mark.parametrize("value", [None, "  "], ids=["unset", "blank"])
@pytest.mark.parametrize(
    ("model", "options", "variable"),
    [
        ("gpt-4o", [], "OPENAI_API_KEY"),
        ("claude-3-5-sonnet", [], "ANTHROPIC_API_KEY"),
        ("anthropic/claude-x", ["--base-url", "http://127.0.0.1:9/v1"], "OPENAI_API_KEY"),
        ("ollama/llama3", ["--api-key-env", "MY_KEY"], "MY_KEY"),
    ],
)
def test_missing_key_error_names_the_variable(value, model, options, variable):
    others = {"OPENAI_API_KEY": SECRET} if variable != "OPENAI_API_KEY" else {}
    env = others if value is None else {**others, variable: value}
    done = codeact("run", "task", "--model", model, *options, env=env)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"codeact: There is no key for {model}: set {variable}")
    assert SECRET not in done.err


def test_a_name_without_a_prefix_that_has_no_key_may_mean_another_model():
    done = codeact("run", "task", "--model", "mistral/large")
    known = "openai, anthropic, gemini, ollama, lmstudio"
    assert done.err.endswith(f"--api-key-env. A name without a prefix ({known}) is a model of OpenAI.\n")


def test_invalid_key_is_not_quoted():
    done = codeact("run", "task", "--model", "gpt-4o", env={"OPENAI_API_KEY": SECRET + "\u201d"})
    assert (done.status, done.out) == (2, "")
    assert done.err == "codeact: The key in OPENAI_API_KEY contains characters that no key has. Copy it again.\n"


@pytest.mark.parametrize("extra", [[], ["--json"], ["--team"]])
@pytest.mark.usefixtures("bubblewrap")
def test_output_of_a_run_contains_no_key(server, extra):
    server.script += [Reply(code("import os", "print(dict(os.environ))")), Reply("Done. TERMINATE")]
    options = ["--base-url", server.base_url, "--api-key-env", "MY_KEY"]
    done = in_bubblewrap("run", "task", "--model", "gpt-4o", *options, *extra, env={"MY_KEY": f" {SECRET}\n"})
    assert done.status == 0
    assert "HOME" in done.out
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize("status", [401, 404, 429, 500])
@pytest.mark.usefixtures("bubblewrap")
def test_key_in_a_server_error_is_replaced(server, status):
    server.script += [Reply(f"Incorrect API key provided: {SECRET}", status=status)] * 4
    options = ["--model", "gpt-4o", "--base-url", server.base_url]
    done = in_bubblewrap("run", "task", *options, env={"OPENAI_API_KEY": SECRET})
    assert done.status == 2
    assert "Incorrect API key provided: ***" in done.err
    assert SECRET not in done.out + done.err
    if status == 401:
        assert " Check the key in OPENAI_API_KEY.\ncodeact: `codeact resume " in done.err


PROVIDER = "autogen_ext.models.openai.OpenAIChatCompletionClient"


@pytest.mark.parametrize(
    "content",
    [
        {"config": {"api_key": SECRET}},
        {"provider": SECRET, "config": {"api_key": SECRET}},
        {"provider": PROVIDER, "config": {"model": "gpt-4o", "api_key": SECRET, "timeout": SECRET}},
        {"provider": PROVIDER, "config": {"model": "gpt-4o", "api_key": {"token": SECRET}}},
        [SECRET],
    ],
    ids=["no provider", "secret provider", "wrong field", "key as object", "list"],
)
def test_invalid_component_is_not_quoted(tmp_path, content):
    file = tmp_path / "model.json"
    file.write_text(json.dumps(content))
    done = codeact("run", "task", "--model", file)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"codeact: {file} ")
    assert SECRET not in done.err
