"""A wrong argument is named when the agent is made, not by whatever breaks on it later."""

from typing import Any

import pytest
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def made(kind: type, **arguments: Any) -> Any:
    given: dict[str, Any] = {
        "name": "agent",
        "code_executor": DockerCommandLineCodeExecutor(mode="session"),
        "model_client": ReplayChatCompletionClient(["55"]),
    }
    return kind(**(given | arguments))


@pytest.mark.parametrize("kind", [CodeActAgent, CodeExecutorAgent])
@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("model_client", "gpt-4o", r"^model_client must be .*, not 'gpt-4o'\.$"),
        ("model_client", ReplayChatCompletionClient, r"not the class ReplayChatCompletionClient\.$"),
        ("code_executor", None, r"^code_executor must be .*, not None\.$"),
        ("code_executor", ReplayChatCompletionClient(["55"]), r"not a ReplayChatCompletionClient\.$"),
        ("approval_func", True, r"^approval_func must be a function, not True\.$"),
        ("tools", double, r"^tools must be a list, not a function\.$"),
        ("supported_languages", "python", r"^supported_languages must be a list, not 'python'\.$"),
    ],
)
def test_argument_of_a_wrong_type_is_named(kind: type, argument: str, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        made(kind, **{argument: value})


def test_sources_must_be_a_list() -> None:
    with pytest.raises(TypeError, match=r"^sources must be a list, not 'coder'\.$"):
        made(CodeExecutorAgent, sources="coder")


def test_a_codeact_agent_needs_a_model() -> None:
    with pytest.raises(TypeError, match="needs a model_client"):
        made(CodeActAgent, model_client=None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (dict, "the class dict"),
        (int, "the class int"),
        ("Offer", "'Offer'"),
        (list[int], "a GenericAlias"),
    ],
)
def test_answer_type_must_be_a_pydantic_model(value: Any, words: str) -> None:
    refused = rf"^output_content_type must be a class derived from .*, not {words}; "
    with pytest.raises(TypeError, match=refused):
        made(CodeActAgent, output_content_type=value)


@pytest.mark.parametrize("argument", ["packages", "preload"])
def test_one_string_is_no_list_of_names(argument: str) -> None:
    given: dict[str, Any] = {argument: "pandas"}
    with pytest.raises(TypeError, match=rf"^{argument} is one string: give a list, \['pandas'\]$"):
        DockerCommandLineCodeExecutor(**given)


@pytest.mark.parametrize("kind", [DockerCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutor])
def test_invalid_limits_are_refused(kind: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^limits must be Limits\(memory='512m', ...\), not {'memory': '1g'}; each limit is also"
    ):
        kind(limits={"memory": "1g"})
    with pytest.raises(TypeError, match=r"^preload is one string: give a list, \['numpy'\]$"):
        kind(preload="numpy")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_retries_on_error": -1}, "0 or more"),
        ({"max_retries_on_error": 1, "model_client": None}, "needs a model_client"),
        ({"name": "the coder"}, "identifier"),
    ],
)
def test_wrong_value_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(CodeExecutorAgent, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"budget": 5}, TypeError, r"^budget must be a Budget, such as Budget\(max_steps=5\), not 5\.$"),
        ({"prompt_style": "xml"}, ValueError, "^prompt_style must be 'markdown' or 'execute', not 'xml'"),
    ],
)
def test_wrong_value_of_a_codeact_agent_is_refused(arguments: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        made(CodeActAgent, **arguments)
