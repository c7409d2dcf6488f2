"""The agent with AutoGen's executors of this machine; `test_end_to_end.py` has ours: generate, fail, decide, repair, reflect.

AutoGen's Azure executor is left out: it needs a session pool in an Azure account. Its Docker-Jupyter executor is left out
too: it builds its image from a registry. Its Jupyter executor runs where nbclient and ipykernel are installed.
"""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from autogen_codeact.agents.code_executor_agent import CARRY_ON
from autogen_codeact.agents.decision import QUESTION
from tests.openai_server import OpenAIServer, structured
from tests.wire import (
    ANSWER,
    FAILS_CODE,
    REASON,
    REPAIR_CODE,
    SYSTEM,
    TASK,
    PlainAgent,
    by,
    failure_message,
    fenced,
    formats,
    model,
    received_messages,
    script,
)

pytestmark = structured


def autogen_local(folder: Path) -> CodeExecutor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns that it is not a sandbox; this code is ours
        return LocalCommandLineCodeExecutor(work_dir=folder, timeout=20)


def autogen_jupyter(folder: Path) -> CodeExecutor:
    missing = [name for name in ("nbclient", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}, which this project does not depend on")
    from autogen_ext.code_executors.jupyter import JupyterCodeExecutor  # noqa: PLC0415 (not installed everywhere)

    return JupyterCodeExecutor(output_dir=folder, timeout=50)


@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (autogen_local, "process"),
        (autogen_jupyter, "session"),
    ],
)
async def test_agent_works_with_executor(tmp_path: Path, make: Callable[[Path], CodeExecutor], mode: str) -> None:
    async with OpenAIServer(script(mode)) as server, make(tmp_path) as executor:
        agent = PlainAgent("coder", executor, model_client=server.client(), max_retries_on_error=1)
        result = await agent.run(task=TASK)

    _, generated, failed, decided, repaired, worked, answer = result.messages
    assert isinstance(failed, CodeExecutionEvent)
    assert isinstance(worked, CodeExecutionEvent)
    assert failed.result.exit_code == 1
    assert {"computing", "NameError: name 'sqrt' is not defined"} <= set(failed.result.output.splitlines())
    assert (worked.result.exit_code, worked.result.output.strip()) == (0, "5.0")
    assert [type(event) for event in (generated, decided, repaired)] == [CodeGenerationEvent] * 3
    assert decided.to_text() == f"Attempt number: 1\nProposed correction: {REASON}"
    assert answer.to_text() == ANSWER

    begin = [SYSTEM, by("user", TASK)]
    failure = [
        *begin,
        model(fenced(FAILS_CODE)),
        by("coder", failure_message(failed.result.output)),
    ]
    repair = [*failure, model(REASON), by("coder", CARRY_ON)]
    end = [*repair, model(fenced(REPAIR_CODE[mode])), by("coder", worked.result.output)]
    assert received_messages(server) == [begin, [*failure, by("coder", QUESTION)], repair, end]
    assert formats(server) == [None, "json_schema", None, None]
