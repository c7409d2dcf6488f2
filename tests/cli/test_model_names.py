"""Names of models in `--model`: which server, client and key each stands for."""

import pytest

from autogen_codeact.cli.jobs import ModelChoice
from autogen_codeact.cli.model_servers import GEMINI, OLLAMA, OPENAI, server_address
from autogen_codeact.cli.models import advice_for, key_for, open_model
from autogen_codeact.cli.output import CommandError
from autogen_codeact.runs.errors import RunError

KEYS = {
    "OPENAI_API_KEY": "sk-openai",
    "ANTHROPIC_API_KEY": "sk-anthropic",
    "GEMINI_API_KEY": "sk-gemini",
    "LLAMA_API_KEY": "sk-llama",
}


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def opened(spec, **options):
    """Return name, address and key of the client that a name opens."""
    config = open_model(ModelChoice(spec, **options)).dump_component().config
    return config["model"], config.get("base_url"), config["api_key"].get_secret_value()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("gpt-4o", ("gpt-4o", None, "sk-openai")),
        ("claude-x", ("claude-x", None, "sk-anthropic")),
        ("Llama-x", ("Llama-x", None, "sk-llama")),
        ("meta-llama/Llama-3", ("meta-llama/Llama-3", None, "sk-openai")),
        ("openai/gpt-4o", ("gpt-4o", "https://api.openai.com/v1", "sk-openai")),
        ("anthropic/claude-x", ("claude-x", "https://api.anthropic.com/v1", "sk-anthropic")),
        ("gemini/x", ("x", "https://generativelanguage.googleapis.com/v1beta/openai", "sk-gemini")),
        ("ollama/qwen/coder:7b", ("qwen/coder:7b", "http://127.0.0.1:11434/v1", "none")),
        ("lmstudio/qwen3", ("qwen3", "http://127.0.0.1:1234/v1", "none")),
    ],
)
def test_name_stands_for_a_server_and_a_key(spec, expected):
    assert opened(spec) == expected


def test_with_base_url_a_name_is_sent_as_it_is():
    url = "http://127.0.0.1:9/v1"
    assert opened("anthropic/claude-x", base_url=url) == ("anthropic/claude-x", url, "sk-openai")


def test_server_of_a_prefix_can_be_changed_by_its_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("OLLAMA_HOST", "gpu")
    monkeypatch.setenv("OLLAMA_API_KEY", "sk-ollama")
    assert opened("openai/x") == ("x", "http://127.0.0.1:9/v1", "sk-openai")
    assert opened("anthropic/x") == ("x", "http://127.0.0.1:9/v1", "sk-anthropic")
    assert opened("ollama/x") == ("x", "http://gpu:11434/v1", "sk-ollama")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":5000", "http://127.0.0.1:5000/v1"),
        ("http://gpu/", "http://gpu/v1"),
        ("https://gpu.example.com/ollama/", "https://gpu.example.com/ollama/v1"),
        ("https://gpu.example.com/v1", "https://gpu.example.com/v1"),
    ],
)
def test_ollama_host_has_the_forms_that_ollama_takes(host, address):
    assert server_address(OLLAMA, {"OLLAMA_HOST": host}) == address


def test_invalid_ollama_host_is_reported():
    with pytest.raises(CommandError, match=r"^OLLAMA_HOST=gpu:many is not an address: "):
        server_address(OLLAMA, {"OLLAMA_HOST": "gpu:many"})


def test_advice_without_a_connection_is_that_for_the_server():
    for choice, advice in (
        (ModelChoice("ollama/x"), "Start it with `ollama serve`, or set OLLAMA_HOST."),
        (ModelChoice("ollama/x", base_url="http://gpu/v1"), "Is the model's server running, and --base-url right?"),
        (ModelChoice("x"), "Is the model's server running, and its address right?"),
    ):
        assert advice_for("APIConnectionError", choice) == advice


@pytest.mark.parametrize("spec", ["openai/", "ollama/ "])
def test_prefix_without_a_name_is_an_error(spec):
    with pytest.raises(CommandError, match=f"^--model {spec} names no model: add its name"):
        open_model(ModelChoice(spec))


def test_unknown_model_of_anthropic_is_asked_for_json_in_words():
    info = open_model(ModelChoice("anthropic/claude-x")).model_info
    assert (info["vision"], info["json_output"], info["structured_output"]) == (True, False, False)


@pytest.mark.parametrize("url", ["", "localhost:8000/v1", "ftp://host/v1", "http://", "http:///v1"])
def test_invalid_address_is_an_error(url):
    with pytest.raises(CommandError) as caught:
        open_model(ModelChoice("gpt-4o", base_url=url))
    assert str(caught.value) == f"--base-url {url} is not an address: it begins with http:// or https://"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_invalid_timeout_is_an_error(seconds):
    with pytest.raises(CommandError, match=r"^--model-timeout is a number of seconds above 0$"):
        open_model(ModelChoice("gpt-4o", timeout_s=seconds))


def test_key_of_a_configuration_is_that_of_its_server(monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "gpu")
    urls = [OPENAI.base_url, GEMINI.base_url, OLLAMA.base_url, "http://gpu:11434/v1", "http://127.0.0.1:9/v1", None]
    found = [key_for({"model": "gemini-x", "base_url": url}) for url in urls]
    assert found == ["sk-openai", "sk-gemini", "none", "none", None, None]
    assert key_for({}) is None
    monkeypatch.delenv("GEMINI_API_KEY")
    with pytest.raises(RunError, match=r"^There is no key for gemini-x: set GEMINI_API_KEY, or name another variable"):
        key_for({"model": "gemini-x", "base_url": GEMINI.base_url})
