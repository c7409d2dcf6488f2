"""Defaults of options: the configuration file, CODEACT_MODEL and CODEACT_BASE_URL."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from autogen_codeact.cli.config import fill
from tests.cli.support import code, codeact, in_bubblewrap, replay

FILE = """
model = "ollama/qwen3"
api_key_env = "MY_KEY"
base_url = "http://localhost:8000/v1"
sandbox = "bubblewrap"
timeout = 120

[option]
memory = "2g"
preload = ["numpy"]

[budget]
retries = 5
steps = 9
"""
RUN: dict[str, Any] = {
    "task": "Do it.",
    "spec": "",
    "base_url": None,
    "api_key_env": None,
    "kind": "auto",
    "timeout": 60.0,
    "others": None,
    "budget": None,
    "act": False,
    "team": False,
}
OPTIONS = ["memory=2g", 'preload=["numpy"]']


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEACT_MODEL", "CODEACT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "codeact" / "config.toml"
    file.parent.mkdir()
    file.write_text(FILE)
    return file


def filled(options: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    """Return how a command's options end that differ from those without a file."""
    before = (options or RUN) | given
    after = dict(before)
    fill(after, given.__contains__)
    return {name: value for name, value in after.items() if value != before[name]}


@pytest.mark.usefixtures("config")
def test_options_that_are_not_given_have_the_files_defaults() -> None:
    assert filled() == {
        "spec": "ollama/qwen3",
        "api_key_env": "MY_KEY",
        "kind": "bubblewrap",
        "timeout": 120,
        "others": OPTIONS,
        "budget": ["retries=5"],
    }


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"timeout": 60.0, "kind": "auto"}, {}),
        ({"others": ["memory=1g"]}, {"others": [*OPTIONS, "memory=1g"]}),
        ({"act": True}, {"budget": ["steps=9"]}),
        ({"spec": "qwen3"}, {"base_url": "http://localhost:8000/v1"}),
        ({"spec": "openai/gpt-4o"}, {}),
        ({"spec": "replay:file"}, {}),
        ({"base_url": "http://other/v1"}, {"spec": "ollama/qwen3"}),
    ],
)
def test_given_options_stay_with_what_belongs_to_them(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = filled(**given)
    assert {name: found[name] for name in expected} == expected
    assert not found.keys() & (given.keys() - {"others"})
    if "spec" in given:
        assert ("base_url" in found, "api_key_env" in found) == ("base_url" in expected, False)


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"port": 0}, {}),  # a command without a sandbox
        ({**RUN, "resume": "last", "component": None}, {}),
        ({"kind": "auto", "others": None}, {"kind": "bubblewrap", "others": OPTIONS}),
        ({"kind": "auto", "others": None, "tasks": "t", "budget": None}, {"kind": "bubblewrap", "others": OPTIONS}),
        ({"kind": "auto", "team": False, "budget": None}, {"kind": "bubblewrap", "budget": ["steps=9"]}),  # a chat
    ],
)
def test_commands_take_the_defaults_that_they_have(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert filled(options) == expected


@pytest.mark.usefixtures("config")
def test_variables_have_priority_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEACT_MODEL", "qwen4")
    monkeypatch.setenv("CODEACT_BASE_URL", "http://gpu/v1")
    found = filled()
    assert (found["spec"], found["base_url"]) == ("qwen4", "http://gpu/v1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('modle = "x"', "modle is unknown; settings are model, base_url"),
        ("timeout = true", "timeout must be a number"),
        ("model = 3", "model must be text in quotes"),
        ('option = "memory=2g"', "option must be a table"),
        ("model = ", "is not TOML"),
        ('model = "\xff"', "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(config: Path, text: str, problem: str) -> None:
    config.write_bytes(text.encode("latin-1"))
    with pytest.raises(typer.BadParameter) as caught:
        filled()
    assert str(caught.value).startswith(str(config))
    assert problem in str(caught.value)


def test_the_command_reads_the_file(bubblewrap: None, config: Path, tmp_path: Path) -> None:
    config.write_text(f'model = "{replay(tmp_path, code("print(6 * 7)"), "It is 42.")}"\n[option]\nmemory = "256m"\n')
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = in_bubblewrap("run", "What is it?", "--save", "none", "--json", env=env)
    assert done.objects[-1]["answer"] == "It is 42."
    config.write_text("[option]\nmemroy = 1\n")
    done = codeact("exec", "-", stdin=code("print(1)"), env=env)
    assert (done.status, done.out) == (2, "")
    assert "'memroy=1' is not NAME=VALUE with the name of an option; did you mean 'memory'?" in done.err
    config.write_text("x = 1\n")
    done = codeact("exec", "-", "--json", stdin=code("print(1)"), env=env)
    assert done.status == 2
    assert json.loads(done.out)["error"]["message"].endswith(
        "x is unknown; settings are model, base_url, api_key_env, model_timeout, sandbox, timeout, option, budget"
    )
