"""AutoGen's `CodeExecutorAgent` on recorded sessions, with its Docker executors; runs in an environment of its own."""

import asyncio
import os
import tempfile
import warnings

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.models.replay import ReplayChatCompletionClient

from . import recorded
from .autogen_executor import INFO
from .library_autogen import Jupyter

VARIANTS = {}
# What the agent shows in place of no output.
NO_OUTPUT = "The script ran but produced no output to console."
# It says for each agent that nobody approves the code.
warnings.filterwarnings("ignore", message="No approval function set")


async def _run(task, executor, codes, *, repeats):
    """Run a task: this agent runs one block in each turn, after which its model reflects."""
    replies = [reply for code in codes for reply in (recorded.fenced(code), recorded.END)]
    agent = CodeExecutorAgent("coder", executor, model_client=ReplayChatCompletionClient(replies, model_info=INFO))
    outputs = []
    for number in range(len(codes)):
        # The result of `run` does not contain what the code wrote; the stream does.
        async for message in agent.run_stream(task=recorded.NEXT if number else task["prompt"]):
            if isinstance(message, CodeExecutionEvent):
                output = message.result.output
                outputs.append("" if output.startswith(NO_OUTPUT) else output)
        recorded.check_answer(message.messages[-1].to_text())
    recorded.check(task["blocks"], outputs, repeats=repeats)


async def _command_line(task):
    with tempfile.TemporaryDirectory() as folder:
        executor = DockerCommandLineCodeExecutor(image=os.environ["BENCH_IMAGE"], work_dir=folder)
        try:
            await executor.start()
            await _run(task, executor, recorded.scripts(task["blocks"]), repeats=True)
        finally:
            await executor.stop()


async def command_line(tasks, concurrency):
    """Run tasks with a new container for each."""
    return await recorded.run_all(_command_line, tasks, concurrency)


async def shared(tasks, concurrency):
    """Run all tasks in one container, where each can see and change the others' files and processes."""
    with tempfile.TemporaryDirectory() as folder:
        executor = DockerCommandLineCodeExecutor(image=os.environ["BENCH_IMAGE"], work_dir=folder)

        async def one(task):
            await _run(task, executor, recorded.scripts(task["blocks"]), repeats=True)

        await executor.start()
        try:
            return await recorded.run_all(one, tasks, concurrency)
        finally:
            await executor.stop()


async def _jupyter(task):
    variant = Jupyter()
    try:
        await variant.start()
        codes = [block["code"] for block in task["blocks"]]
        await _run(task, variant.executor, codes, repeats=False)
    finally:
        if hasattr(variant, "server"):
            await variant.stop()
        await asyncio.to_thread(variant.folder.cleanup)


async def jupyter(tasks, concurrency):
    """Run tasks with a new container and a new kernel for each."""
    return await recorded.run_all(_jupyter, tasks, concurrency)


PROBES = {"batch, command line": command_line, "batch, shared": shared, "batch, jupyter": jupyter}
