"""Saved component configs still load, and mean the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.cases import case

# AutoGen warns when a FunctionTool is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:\\s*⚠️:UserWarning", "ignore:(?s).*SECURITY WARNING:UserWarning")
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def load(path: Path) -> tuple[dict[str, Any], SandboxCodeExecutor]:
    saved = json.loads(path.read_text())
    loaded = CodeExecutor.load_component(saved)
    kind = DockerCommandLineCodeExecutor if path.stem.startswith("docker") else BubblewrapCommandLineCodeExecutor
    assert type(loaded) is kind
    return saved, loaded


def without_texts(value: Any) -> Any:
    """Leave out what AutoGen copies from the docstrings of components."""
    if isinstance(value, list):
        return [without_texts(each) for each in value]
    if isinstance(value, dict):
        is_component = "provider" in value
        return {
            name: without_texts(each) for name, each in value.items() if not (is_component and name == "description")
        }
    return value


def test_a_saved_config_loads_and_is_written_with_the_same_values() -> None:
    for path in GOLDEN:
        with case(path):
            saved, loaded = load(path)
            written = json.loads(loaded.dump_component().model_dump_json())
            assert (written["provider"], written["component_type"]) == (saved["provider"], saved["component_type"])
            if saved["config"].get("tool_limits"):
                assert written["config"]["tool_limits"].pop("file_bytes") == "256m"  # newer than these files
            assert without_texts({name: written["config"].get(name) for name in saved["config"]}) == without_texts(
                saved["config"]
            )


def test_a_saved_config_with_all_options_makes_a_sandbox_with_them() -> None:
    _, loaded = load(Path(__file__).parent / "golden" / "docker_all_options.json")
    options = loaded.sandbox.options.values()
    assert (loaded.timeout, loaded.mode, str(loaded.work_dir)) == (1.5, "session", "/tmp/some/where")
    assert (options["limits"].memory, options["limits"].cpu_seconds) == ("200m", 2.5)
    assert options["functions_packages"] == ["requests"]
    assert "def answer()" in options["functions_source"]
    assert {name: value.reference for name, value in loaded.sandbox.options.variables.items()} == {
        "LITERAL": "${LITERAL}",
        "OTHER": "${HOST_NAME}",
    }
    assert options["tool_limits"].calls == 9
    assert [request["driver"] for request in options["device_requests"]] == ["cube", ""]


async def test_a_saved_config_with_tools_has_them() -> None:
    _, loaded = load(Path(__file__).parent / "golden" / "docker_tools.json")
    assert {tool.name for tool in await loaded.list_tools()} == {"add", "plus"}
    await loaded.stop()
