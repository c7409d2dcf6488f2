"""Our `CodeActAgent` on recorded sessions, each in a sandbox of its own from a pool."""

import os

from autogen_agentchat.messages import CodeExecutionEvent
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import Limits, SandboxPool

from . import recorded
from .autogen_executor import INFO

VARIANTS = {}


def _agent(executor, task):
    replies = [*(recorded.fenced(block["code"]) for block in task["blocks"]), recorded.END]
    return CodeActAgent("coder", executor, model_client=ReplayChatCompletionClient(replies, model_info=INFO))


async def pooled(tasks, concurrency, sandbox):
    """Run tasks with a new sandbox for each; starting and stopping the pool counts."""
    limits = Limits(cpus=os.cpu_count() or 1)
    async with SandboxPool(
        min(concurrency, 8), sandbox=sandbox, max_alive=2 * concurrency, mode="session", limits=limits
    ) as pool:

        async def one(task):
            async with pool.executor() as executor:
                result = await _agent(executor, task).run(task=task["prompt"])
            outputs = [message.result.output for message in result.messages if isinstance(message, CodeExecutionEvent)]
            if result.messages[-1].to_text() != recorded.END:
                raise recorded.WrongOutput(f"the run ended with {result.messages[-1]!r}")
            recorded.check(task["blocks"], outputs)

        return await recorded.run_all(one, tasks, concurrency)


PROBES = {"batch, pool": pooled}
