"""Who may decide what is loaded when a run is continued: the configuration in a log of somebody else is not trusted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import RunNotResumableError, recorded
from autogen_codeact.runs.config_signature import is_signed_by_user, sign_config
from autogen_codeact.runs.plan import make_plan
from autogen_codeact.runs.rebuilt_agents import load_agents
from tests.executors import reused

ANSWERS = ["```python\nx = 1\n```", "```python\nfinal_answer(x)\n```"]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has not made a run yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


async def failed_run(folder: Path, **options: Any) -> Path:
    """The folder of a run whose model has failed before anything ran."""
    executor = reused.executor(BubblewrapCommandLineCodeExecutor, mode="session", **options)
    agent = CodeActAgent("coder", executor, model_client=ReplayChatCompletionClient([]), describe_environment=False)
    with pytest.raises(ValueError, match="No more mock responses"):
        async for _ in recorded(agent, task="Begin.", path=folder):
            pass
    await agent.close()
    return folder


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the configuration of the agent in a log."""
    log = folder / "events.jsonl"
    first, rest = log.read_text().split("\n", 1)
    event = json.loads(first)
    edit(event["component"])
    log.write_text(json.dumps(event) + "\n" + rest)


async def test_own_run_is_continued_with_its_whole_configuration(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run", work_dir=tmp_path / "work")
    agent = load_agents(make_plan(folder), [])
    assert isinstance(agent, CodeActAgent)
    assert agent.code_executor.work_dir == tmp_path / "work"


async def test_run_of_another_user_may_not_use_folders_of_this_machine(tmp_path: Path, state_folder: Path) -> None:
    folder = await failed_run(tmp_path / "run", work_dir=tmp_path / "work")
    (state_folder / "autogen-codeact" / "run.key").unlink()
    with pytest.raises(RunNotResumableError) as refused:
        load_agents(make_plan(folder), [])
    assert str(refused.value) == (
        f"{folder} was not made by you on this machine, and its configuration needs trust:\n"
        "- config.code_executor.config.work_dir: names a folder of this machine; pass work_dir= when you load it\n"
        "If you trust who made it, continue it with --trust (trust=True in Python), or pass your own agent as agent=."
    )
    agent = load_agents(make_plan(folder), [], trust=True)
    assert isinstance(agent, CodeActAgent)


async def test_run_of_another_user_without_anything_that_needs_trust_is_continued(
    tmp_path: Path, state_folder: Path
) -> None:
    folder = await failed_run(tmp_path / "run")
    (state_folder / "autogen-codeact" / "run.key").unlink()
    assert isinstance(load_agents(make_plan(folder), []), CodeActAgent)


async def test_changed_configuration_runs_no_code_in_this_process(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run")
    source = f"open({str(tmp_path / 'proof')!r}, 'w')\ndef tool() -> None: pass"
    tool = {
        "provider": "autogen_core.tools.FunctionTool",
        "component_type": "tool",
        "config": {
            "source_code": source,
            "name": "tool",
            "description": "",
            "global_imports": [],
            "has_cancellation_support": False,
        },
    }
    change(folder, lambda component: component["config"].update(tools=[tool]))
    with pytest.raises(RunNotResumableError, match="carries source code, which loading runs in this process"):
        load_agents(make_plan(folder), [])
    assert not (tmp_path / "proof").exists()


async def test_changed_class_is_not_imported(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run")
    change(folder, lambda component: component.update(provider="antigravity.Agent"))
    with pytest.raises(RunNotResumableError, match="is not on the list of components"):
        load_agents(make_plan(folder), [])


def test_signature_holds_for_one_configuration_and_one_user(state_folder: Path) -> None:
    signature = sign_config({"provider": "a"})
    assert is_signed_by_user({"provider": "a"}, signature)
    assert not is_signed_by_user({"provider": "b"}, signature)
    assert not is_signed_by_user({"provider": "a"}, None)
    assert not is_signed_by_user({"provider": "a"}, "é")
    key = state_folder / "autogen-codeact" / "run.key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    key.write_bytes(b"0" * 32)
    assert not is_signed_by_user({"provider": "a"}, signature)


def test_key_that_others_can_read_is_not_used(state_folder: Path) -> None:
    assert sign_config({}) is not None
    (state_folder / "autogen-codeact" / "run.key").chmod(0o644)
    assert sign_config({}) is None


def test_run_without_a_folder_for_the_key_has_no_signature(state_folder: Path) -> None:
    state_folder.write_text("no folder")
    assert sign_config({"provider": "a"}) is None
    assert not is_signed_by_user({"provider": "a"}, "0" * 64)
