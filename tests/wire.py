"""Shared parts of the end-to-end tests: one scripted run over HTTP, its expected messages, and checks for leftovers."""

import asyncio
import gc
import hashlib
import json
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
)

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CARRY_ON
from autogen_codeact.agents.decision import QUESTION
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.backends.docker.engine import connect
from tests.openai_server import OpenAIServer, Reply

TASK = "How long is the vector (3, 4)?"
FAILS_CODE = "numbers = [3, 4]\nprint('computing', flush=True)\nprint(sqrt(sum(n * n for n in numbers)))\n"
REASON = "sqrt is missing: import it from math"
ANSWER = "It is 5.0 long. TERMINATE"
REPAIR_CODE = {
    "process": "from math import sqrt\nprint(sqrt(sum(n * n for n in [3, 4])))\n",
    "session": "from math import sqrt\nsqrt(sum(n * n for n in numbers))\n",  # needs what the failed block left
}
MODES = ("process", "session")


def fenced(code: str, language: str = "python") -> str:
    return f"Here it is:\n```{language}\n{code}```\n"


def decision(retry: bool, reason: str = REASON) -> str:
    return json.dumps({"reason": reason, "retry": retry})


def script(mode: str) -> list[Reply | str]:
    """Return the answers: generate, fail, decide, repair, reflect; each with its own token count."""
    return [
        Reply(fenced(FAILS_CODE), completion_tokens=10),
        Reply(decision(True), completion_tokens=20),
        Reply(fenced(REPAIR_CODE[mode]), completion_tokens=30),
        Reply(ANSWER, completion_tokens=40),
    ]


def failed_output(mode: str) -> str:
    """Return the output of `FAILS_CODE` as the first block of a sandbox."""
    name = hashlib.sha256(FAILS_CODE.encode()).hexdigest()
    file = f"/workspace/tmp_code_{name}.py" if mode == "process" else "<block 1>"
    return (
        f'computing\nTraceback (most recent call last):\n  File "{file}", line 3, in <module>\n'
        "    print(sqrt(sum(n * n for n in numbers)))\n          ^^^^\nNameError: name 'sqrt' is not defined\n"
    )


# What the server received

PlainAgent = partial(CodeExecutorAgent, describe_environment=False)
"""The agent with AutoGen's system message, and nothing else in it."""
SYSTEM = {"role": "system", "content": CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE}


def by(name: str, words: str) -> dict[str, Any]:
    return {"role": "user", "name": name, "content": words}


def model(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def conversation(mode: str) -> list[list[dict[str, Any]]]:
    """Return the messages of the script's four requests."""
    start = [SYSTEM, by("user", TASK)]
    failure = [*start, model(fenced(FAILS_CODE)), by("coder", failure_message(failed_output(mode), mode))]
    repair = [*failure, model(REASON), by("coder", CARRY_ON)]
    result = [*repair, model(fenced(REPAIR_CODE[mode])), by("coder", "5.0\n")]
    return [start, [*failure, by("coder", QUESTION)], repair, result]


def failure_message(output: str, mode: str = "process") -> str:
    kept = (
        "\nThe session's memory was kept: what this code defined before it ended is there." if mode == "session" else ""
    )
    return f"The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\n{output}{kept}"


def received_messages(server: OpenAIServer) -> list[list[dict[str, Any]]]:
    """Return the messages of every request, without fields that are null."""
    return [
        [{key: value for key, value in message.items() if value is not None} for message in request["messages"]]
        for request in server.requests
    ]


def formats(server: OpenAIServer) -> list[str | None]:
    return [(request.get("response_format") or {}).get("type") for request in server.requests]


# What the caller received


def story(mode: str) -> list[tuple[str, str]]:
    """Return who says what in a run of the script, the task first."""
    said = [
        fenced(FAILS_CODE),
        failed_output(mode),
        f"Attempt number: 1\nProposed correction: {REASON}",
        fenced(REPAIR_CODE[mode]),
        "5.0\n",
        ANSWER,
    ]
    return [("user", TASK), *(("coder", words) for words in said)]


def texts_of(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[tuple[str, str]]:
    return [(message.source, message.to_text()) for message in messages]


# Leftovers


def processes(executor: DockerCommandLineCodeExecutor) -> list[str]:
    """Return the command lines of all processes in the executor's container."""
    assert executor.container_name is not None
    with closing(connect()) as engine:
        top = engine.top(executor.container_name, ps_args="-eo pid,args")
    return sorted(" ".join(row[1:]) for row in top["Processes"])


async def runs(executor: DockerCommandLineCodeExecutor, what: str) -> None:
    """Wait until a process with these words in its command line is in the container, at most 20 s."""
    async with asyncio.timeout(20):
        while not any(what in line for line in await asyncio.to_thread(processes, executor)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def nothing_left(executor: DockerCommandLineCodeExecutor) -> AsyncIterator[None]:
    """Fail if there is a process of the sandbox, a task or a thread that did not exist before."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    in_sandbox, threads = await _steady(executor, _idle.get(executor)), _threads()
    _idle[executor] = in_sandbox
    yield
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert tasks == set()
    now = await _steady(executor, in_sandbox)
    assert now == in_sandbox, f"processes of the sandbox: {now}, not {in_sandbox}"
    assert await asyncio.to_thread(_threads_left, threads) == set()
    gc.collect()
    await asyncio.sleep(0)
    assert reports == []


_idle = WeakKeyDictionary[DockerCommandLineCodeExecutor, list[str]]()
"""The processes of sandboxes in which no code runs. They are stable only once the ones for the next block are forked."""


async def _steady(executor: DockerCommandLineCodeExecutor, wanted: list[str] | None = None) -> list[str]:
    """Return the processes once they are as wanted, or stable for a while; wait at most 10 s."""
    loop = asyncio.get_running_loop()
    deadline, found, since = loop.time() + 10, await asyncio.to_thread(processes, executor), loop.time()
    while found != wanted and loop.time() < deadline and (wanted is not None or loop.time() < since + 1):
        await asyncio.sleep(0.1)
        now = await asyncio.to_thread(processes, executor)
        if now != found:
            found, since = now, loop.time()
    return found


def _threads_left(before: set[threading.Thread]) -> set[threading.Thread]:
    """Return the threads that did not exist before; a thread that has done its work gets up to 10 s to end."""
    until = time.monotonic() + 30
    while (left := _threads() - before) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def _threads() -> set[threading.Thread]:
    # Those of the loop's pool wait for work as long as the loop lives; the server's are the test's own.
    return {
        thread
        for thread in threading.enumerate()
        if not thread.name.startswith(("asyncio_", "openai-server")) and "process_request" not in thread.name
    }
