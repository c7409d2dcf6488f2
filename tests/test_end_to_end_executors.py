"""The agent with AutoGen's executors of this machine; `test_end_to_end.py` has ours: generate, fail, decide, repair, reflect.

AutoGen's Azure executor is left out: it needs a session pool in an Azure account. Its Docker-Jupyter executor is left out
too: it builds its image from a registry. Its Jupyter executor runs where nbclient and ipykernel are installed.
"""

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.code_executor import CodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from tests.openai_server import OpenAIServer, structured
from tests.wire import (
    ANSWER,
    TASK,
    PlainAgent,
    by,
    failure_message,
    formats,
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


@pytest.mark.parametrize(("make", "mode"), [(autogen_local, "process"), (autogen_jupyter, "session")])
async def test_agent_works_with_executor(tmp_path: Path, make: Callable[[Path], CodeExecutor], mode: str) -> None:
    async with OpenAIServer(script(mode)) as server, make(tmp_path) as executor:
        agent = PlainAgent("coder", executor, model_client=server.client(), max_retries_on_error=1)
        result = await agent.run(task=TASK)

    failed, worked = (event.result for event in result.messages if isinstance(event, CodeExecutionEvent))
    assert (failed.exit_code, worked.exit_code, worked.output.strip()) == (1, 0, "5.0")
    assert {"computing", "NameError: name 'sqrt' is not defined"} <= set(failed.output.splitlines())
    assert result.messages[-1].to_text() == ANSWER
    told = received_messages(server)
    assert [len(request) for request in told] == [2, 5, 6, 8]
    assert told[1][-2] == by("coder", failure_message(failed.output))
    assert told[3][-1] == by("coder", worked.output)
    assert formats(server) == [None, "json_schema", None, None]
