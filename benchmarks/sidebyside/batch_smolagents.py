"""smolagents' `CodeAgent` on recorded sessions, with its Docker executor; runs in an environment with its newest release."""

import asyncio
import os
import re
import socket

from smolagents import CodeAgent
from smolagents.memory import ActionStep
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import LogLevel

from . import recorded

VARIANTS = {}
LOGS = "Execution logs:\n"
AFTER_LOGS = "Last output from code snippet:\n"
TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
GATEWAY = "python3 -m jupyter kernelgateway --KernelGatewayApp.ip=0.0.0.0 --KernelGatewayApp.port=8888"


class ScriptedModel(Model):
    """Answers at once with the next of some messages.

    Args:
        replies: The messages.
    """

    def __init__(self, replies):
        super().__init__(model_id="scripted")
        self.replies = iter(replies)

    def generate(self, messages, **_):
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.replies))


def _run(task):
    codes = [*(block["code"] for block in task["blocks"]), f"final_answer({recorded.END!r})"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent = CodeAgent(
        tools=[],
        model=ScriptedModel(f"<code>\n{code}\n</code>" for code in codes),
        executor_type="docker",
        executor_kwargs={
            "port": port,
            "image_name": os.environ["BENCH_IMAGE"],
            "build_new_image": False,
            "container_run_kwargs": {"command": GATEWAY},
        },
        max_steps=len(codes) + 1,
        verbosity_level=LogLevel.OFF,
    )
    try:
        answer = agent.run(task["prompt"])
        steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
    finally:
        agent.cleanup()
    recorded.check_answer(answer)
    recorded.check(task["blocks"], [_output(step) for step in steps[:-1]])


def _output(step):
    if step.error is not None:
        return TERMINAL_COLOURS.sub("", str(step.error))
    return (step.observations or "").partition(LOGS)[2].partition(AFTER_LOGS)[0]


async def docker(tasks, concurrency):
    """Run tasks with a new container and a new kernel for each; the library blocks, so each runs in a thread."""

    async def one(task):
        await asyncio.to_thread(_run, task)

    return await recorded.run_all(one, tasks, concurrency)


PROBES = {"batch, docker": docker}
