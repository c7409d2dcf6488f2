"""Whose a log is, and what is loaded when a run is continued: the configuration in a log of somebody else is not trusted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded, resume
from autogen_codeact.runs.agents import load_agents
from autogen_codeact.runs.chain import unsigned, user_chain
from autogen_codeact.runs.plan import RunNotResumableError, make_plan


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has not made a run yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


async def failed_run(folder: Path, **options: Any) -> Path:
    """The folder of a run whose model has failed before anything ran."""
    executor = BubblewrapCommandLineCodeExecutor(mode="session", **options)
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
        "- config.code_executor.config.work_dir: is not a field that an untrusted configuration may set\n"
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
    with pytest.raises(
        RunNotResumableError, match=r"autogen_core\.tools.FunctionTool is not a component that an untrusted"
    ):
        load_agents(make_plan(folder), [])
    assert not (tmp_path / "proof").exists()


async def test_only_a_prefix_of_whole_lines_is_an_own_log(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run")
    other = await failed_run(tmp_path / "other")
    log = folder / "events.jsonl"
    lines, others = log.read_bytes().splitlines(keepends=True), (other / "events.jsonl").read_bytes().splitlines(True)
    assert len(lines) > 3

    def is_own(*content: bytes) -> bool:
        log.write_bytes(b"".join(content))
        plan = make_plan(folder)
        return plan.chain is not None

    assert is_own(*lines)
    for count in range(2, len(lines)):
        assert is_own(*lines[:count]), f"the first {count} lines"
        assert is_own(*lines[:count], lines[count][:-10]), f"the first {count} lines, and a part of the next"
    without = json.dumps({**json.loads(lines[-1]), "duration_s": 9.0}).encode()[:-1]
    for name, content in {
        "edited": [*lines[:-1], lines[-1].replace(b'"failed"', b'"cancelled"')],
        "spaces": [*lines[:-1], lines[-1].replace(b'"seq":', b'"seq": ')],
        "spliced": [*lines[:-1], others[-1]],
        "of another run": others,
        "without a code": [*lines[:-1], without + b"}\n"],
        "with a code of the line before": [*lines[:-1], without + b"," + lines[-2][-42:]],
        "begun by another": [others[0], *lines[1:]],
        "without codes": [unsigned(line[:-1]) + b"\n" for line in lines],
    }.items():
        assert not is_own(*content), name
    log.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert user_chain() is not None
    with pytest.raises(RunNotResumableError):
        make_plan(folder)  # it is damaged, too


async def test_a_copy_is_foreign_and_a_moved_run_stays_own(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run", work_dir=tmp_path / "work")
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "moved")
    assert make_plan(tmp_path / "moved").chain is not None
    with pytest.raises(RunNotResumableError, match="was not made by you on this machine"):
        load_agents(make_plan(tmp_path / "copy"), [])
    assert isinstance(load_agents(make_plan(tmp_path / "copy"), [], trust=True), CodeActAgent)


async def test_a_continued_run_goes_on_with_the_chain(tmp_path: Path) -> None:
    folder = await failed_run(tmp_path / "run")
    for attempt in range(2):
        with pytest.raises(ValueError, match="No more mock responses"):
            await resume(folder)
        assert make_plan(folder).chain is not None, attempt


def test_key_is_made_once_and_only_for_this_user(state_folder: Path, tmp_path: Path) -> None:
    assert user_chain() is None
    made = user_chain(make=True)
    key = state_folder / "autogen-codeact" / "run.key"
    assert made is not None
    assert (key.stat().st_mode & 0o777, key.read_bytes()) == (0o600, made.key)
    assert user_chain(make=True) == made
    key.chmod(0o644)  # others can read it
    assert user_chain(make=True) is None


def test_without_a_folder_for_the_key_there_is_no_chain(state_folder: Path) -> None:
    state_folder.write_text("no folder")
    assert user_chain(make=True) is None
