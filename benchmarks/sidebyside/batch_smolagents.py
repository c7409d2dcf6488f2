"""smolagents' `CodeAgent` on recorded sessions, with its Docker executor; runs in an environment with its newest release."""

import asyncio
import os
import re
import socket
import time

import requests
from smolagents import CodeAgent
from smolagents.memory import ActionStep
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.monitoring import LogLevel
from smolagents.remote_executors import DockerExecutor

from . import recorded

VARIANTS = {}
LOGS = "Execution logs:\n"
AFTER_LOGS = "Last output from code snippet:\n"
TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# The kernel discards what reaches it while it still handles an error, and this library sends the next block as soon as it has
# read the error. A model that answers at once would meet that, which no real one does.
AFTER_ERROR_S = 0.25
GATEWAY = "python3 -m jupyter kernelgateway --KernelGatewayApp.ip=0.0.0.0 --KernelGatewayApp.port=8888"


# The library waits about ten seconds for its gateway; that many at once on few processors start more slowly than that.
WAITS = 6
_wait_for_server = DockerExecutor._wait_for_server


def _wait_longer(executor, token):
    """Wait for the gateway as the library does, but up to six times as long."""
    for _ in range(WAITS):
        _wait_for_server(executor, token)
        try:
            requests.get(f"{executor.base_url}/api/kernelspecs?token={token}", timeout=2).raise_for_status()
        except requests.RequestException:
            continue
        return


DockerExecutor._wait_for_server = _wait_longer


class Discarded(Exception):
    """The kernel has not run a block; an attempt has failed."""


class ScriptedModel(Model):
    """Answers with the next of some codes: at once, but after an error when the kernel has handled it.

    Args:
        codes: The codes.
        kinds: What became of the block before each, as recorded.
    """

    def __init__(self, codes, kinds):
        super().__init__(model_id="scripted")
        self.replies = zip(codes, kinds, strict=True)

    def generate(self, messages, **_):
        code, before = next(self.replies)
        if before == "error":
            time.sleep(AFTER_ERROR_S)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>")


def _run(task):
    codes = [*(block["code"] for block in task["blocks"]), f"final_answer({recorded.END!r})"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    agent = CodeAgent(
        tools=[],
        model=ScriptedModel(codes, ["", *(block["kind"] for block in task["blocks"])]),
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
    outputs = [_output(step) for step in steps[:-1]]
    for number, output in enumerate(outputs[1:], 2):
        before, block = task["blocks"][number - 2 : number]
        if before["kind"] == "error" and block["expect"] and not output:
            raise Discarded(f"the kernel discarded block {number}, which came too soon after an error")
    recorded.check_answer(answer)
    recorded.check(task["blocks"], outputs)


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
