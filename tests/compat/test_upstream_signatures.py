"""What code written for upstream's classes can call, it can call on ours."""

import inspect
import json
from string import Template
from typing import Any

import pytest
from autogen_agentchat import agents as upstream_agents
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor as UpstreamExecutor

from autogen_codeact import agents, executors

PAIRS = [
    (upstream_agents.CodeExecutorAgent, agents.CodeExecutorAgent),
    (UpstreamExecutor, executors.DockerCommandLineCodeExecutor),
]
OTHER_DEFAULTS = {"image"}
"""Parameters whose default differs on purpose; docs/differences.md says why."""


def public(cls: type[Any]) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_the_constructor_takes_every_argument_the_same_way(theirs: Any, ours: Any) -> None:
    taken = inspect.signature(ours).parameters
    asked = inspect.signature(theirs).parameters

    assert {name: p.kind for name, p in asked.items()} == {name: taken[name].kind for name in asked}
    positional = [name for name, p in asked.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert list(taken)[: len(positional)] == positional
    for name in asked.keys() - OTHER_DEFAULTS:
        theirs_default, ours_default = asked[name].default, taken[name].default
        both_empty = ours is not agents.CodeExecutorAgent and not theirs_default and not ours_default
        assert theirs_default == ours_default or both_empty, name


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_every_public_name_is_there(theirs: Any, ours: Any) -> None:
    assert public(theirs) - public(ours) == set()


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_every_public_method_takes_the_same_arguments(theirs: Any, ours: Any) -> None:
    for name in public(theirs):
        method = inspect.getattr_static(theirs, name)
        if inspect.isfunction(method):
            asked = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(ours, name)).parameters)[: len(asked)] == asked, name


def test_the_words_of_the_agent_are_upstreams():
    theirs, ours = upstream_agents.CodeExecutorAgent, agents.CodeExecutorAgent
    words = [name for name, value in inspect.getmembers(theirs) if name.isupper() and isinstance(value, str)]

    assert len(words) >= 4
    assert {name: getattr(ours, name) for name in words} == {name: getattr(theirs, name) for name in words}
    assert theirs.DEFAULT_SUPPORTED_LANGUAGES == ours.DEFAULT_SUPPORTED_LANGUAGES


def test_every_language_label_that_upstream_takes_is_taken():
    assert set(UpstreamExecutor.SUPPORTED_LANGUAGES) <= set(executors.DockerCommandLineCodeExecutor.SUPPORTED_LANGUAGES)
    theirs, ours = (
        UpstreamExecutor.FUNCTION_PROMPT_TEMPLATE,
        executors.DockerCommandLineCodeExecutor.FUNCTION_PROMPT_TEMPLATE,
    )
    assert all(Template(each).get_identifiers() == ["module_name", "functions"] for each in (theirs, ours))


def test_a_config_written_for_upstreams_executor_loads_under_our_provider(tmp_path):
    config = json.loads(UpstreamExecutor(work_dir=tmp_path, timeout=7).dump_component().model_dump_json())
    config["provider"] = "autogen_codeact.executors.DockerCommandLineCodeExecutor"

    executor = CodeExecutor.load_component(config)

    assert isinstance(executor, executors.DockerCommandLineCodeExecutor)
    assert executor.timeout == 7
