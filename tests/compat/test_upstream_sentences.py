"""What programs written for AutoGen's two classes look for: its sentences, the files that it leaves, what it raises."""

import os
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as UpstreamAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, OutputChunk
from tests.sandbox.sandboxes import block

pytestmark = pytest.mark.usefixtures("docker_engine")


def fenced(code: str, language: str = "python") -> TextMessage:
    return TextMessage(content=f"```{language}\n{code}\n```", source="assistant")


async def answer(agent: Any, *messages: TextMessage) -> str:
    response = await agent.on_messages(list(messages), CancellationToken())
    assert isinstance(response.chat_message, TextMessage)
    return response.chat_message.content


def test_a_failed_dump_has_autogens_sentence() -> None:
    agent = CodeExecutorAgent("runner", DockerCommandLineCodeExecutor(), approval_func=lambda _: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="Cannot serialize CodeExecutorAgent with approval_func set"):
        agent.dump_component()


@pytest.mark.parametrize("mode", ["process", "session"])
async def test_a_timeout_is_a_line_of_the_output(tmp_path: Path, mode: Any) -> None:
    code = "print('begun', flush=True); import time; time.sleep(60)"
    async with DockerCommandLineCodeExecutor(work_dir=tmp_path, timeout=3, mode=mode) as executor:
        result = await executor.execute_code_blocks([block(code)], CancellationToken())
        assert (result.exit_code, result.output) == (124, "begun\n\n Timeout")
        items = [item async for item in executor.execute_stream([block(code)], CancellationToken())]
        assert "".join(item.text for item in items if isinstance(item, OutputChunk)) == "begun\n\n Timeout"
        # AutoGen's own agents read nothing else, and ours tell it in their own words.
        with pytest.warns(UserWarning, match="No approval function"):
            upstream = UpstreamAgent("runner", executor)
        assert (await answer(upstream, fenced(code))).endswith("begun\n\n Timeout")
        assert "Timeout" not in await answer(CodeExecutorAgent("runner", executor), fenced(code))


async def test_split_streams_contain_only_the_codes_output(tmp_path: Path) -> None:
    code = "print('begun', flush=True); import time; time.sleep(60)"
    async with DockerCommandLineCodeExecutor(work_dir=tmp_path, timeout=3, split_streams=True) as executor:
        items = [item async for item in executor.execute_stream([block(code)], CancellationToken())]
        result = items.pop()
    assert "".join(item.text for item in items if isinstance(item, OutputChunk)) == "begun\n"
    assert not isinstance(result, OutputChunk)
    assert (result.stdout, result.stderr, result.output) == ("begun\n", "", "begun\n\n Timeout")


async def test_files_of_init_command_are_in_the_folder_after_the_start(tmp_path: Path) -> None:
    command = "echo made > init.txt; mkdir sub; echo 2 > sub/two.txt"
    async with DockerCommandLineCodeExecutor(work_dir=tmp_path, init_command=command):
        assert (tmp_path / "init.txt").read_text() == "made\n"
        assert (tmp_path / "sub" / "two.txt").read_text() == "2\n"
        assert len(os.listdir(tmp_path)) == 2


async def test_the_path_of_removed_code_is_in_the_result(tmp_path: Path) -> None:
    async def path_of(executor: DockerCommandLineCodeExecutor, code: str) -> Path:
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
        assert result.code_file is not None
        return Path(result.code_file)

    async with DockerCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        kept = await path_of(executor, "print(1)")
        assert kept.read_text() == "print(1)"
    async with DockerCommandLineCodeExecutor(work_dir=tmp_path, delete_tmp_files=True) as executor:
        assert await path_of(executor, "print(1)") == kept
        assert not kept.exists()
        assert not (await path_of(executor, "1 / 0")).exists()
        assert (await path_of(executor, "# filename: named.py\nprint(1)")).exists()


def test_the_error_of_the_folder_has_autogens_sentence() -> None:
    executor = DockerCommandLineCodeExecutor()
    with pytest.raises(RuntimeError, match="Working directory not properly initialized"):
        _ = executor.work_dir
