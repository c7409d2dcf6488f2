"""Hints in the observation, if code has met a limit of the sandbox."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.code_executor import CodeResult

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.environment import hints_for
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted
from tests.agents.test_environment import ASKED

SEABORN = "ModuleNotFoundError: No module named 'seaborn'\n"
WITHOUT = ": do without it, or say in the answer what is missing."
NO_NETWORK = f"Hint: the sandbox has no network. No host can be reached{WITHOUT}"
NOT_INSTALLED = f"It can't be installed from code{WITHOUT}"
COMMANDS = "Commands that are there: bash, git."
PACKAGE = "--package {0} (packages=['{0}']) or --allow-pip (allow_pip=True) would help."
IMAGE = "An image that has it (image=) would help."
HOST = "--allow-domain {0} (allow_domains=['{0}']) would help."


def failed(output: str) -> CodeResult:
    return CodeResult(exit_code=1, output=output)


@pytest.mark.parametrize(
    ("output", "problem", "way_out", "option", "name"),
    [
        (SEABORN, "seaborn is not installed.", NOT_INSTALLED, PACKAGE, "seaborn"),
        (
            "ModuleNotFoundError: No module named 'cv2'",
            "opencv-python is not installed.",
            NOT_INSTALLED,
            PACKAGE,
            "opencv-python",
        ),
        (
            "ERROR: No matching distribution found for torch",
            "torch is not installed.",
            NOT_INSTALLED,
            PACKAGE,
            "torch",
        ),
        ("/tmp/a.sh: line 3: tree: command not found", "the command tree is not in the sandbox.", COMMANDS, IMAGE, ""),
        ("sh: 1: jq: not found", "the command jq is not in the sandbox.", COMMANDS, IMAGE, ""),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "", NO_NETWORK, HOST, "api.example.com"),
        ("curl: (6) Could not resolve host: Data.Example.org", "", NO_NETWORK, HOST, "api.example.com"),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a.example.net', port=443): Max retries exceeded "
            "with url: / (Caused by NameResolutionError(': Failed to resolve ([Errno -2] Name or service not known)'))",
            "",
            NO_NETWORK,
            HOST,
            "api.example.com",
        ),
    ],
)
def test_a_limit_has_a_hint_for_the_model_and_one_for_persons(
    output: str, problem: str, way_out: str, option: str, name: str
) -> None:
    (hint,) = hints_for(failed(f"Traceback\n{output}\n"), ASKED)
    assert hint.for_model == (f"Hint: {problem} {way_out}" if problem else way_out)
    assert not re.search(r"\w=|--|whoever", hint.for_model)
    assert hint.for_person == f"Hint: {hint.problem} {option.format(name)}"


def test_hints_follow_the_options() -> None:
    pip = replace(ASKED, pip=True, packages={"matplotlib": "3"})
    (hint,) = hints_for(failed(SEABORN), pip)
    assert {hint.for_model, hint.for_person} == {
        "Hint: seaborn is not installed. `pip install seaborn` in a shell block may install it."
    }
    some = replace(ASKED, domains=("a.example.com",) * 7)
    (hint,) = hints_for(failed("Could not resolve host: b.example.com"), some)
    reached = f"Hint: the sandbox reaches only {', '.join(['a.example.com'] * 5)} and 2 more."
    assert hint.for_model == f"{reached} Other hosts can't be reached{WITHOUT}"
    assert (
        hint.for_person == f"{reached} --allow-domain api.example.com (allow_domains=['api.example.com']) would help."
    )
    (hint,) = hints_for(
        failed("Tunnel connection failed: 403 c.example.com:443 is not in allow_domains; to allow"), some
    )
    assert (
        hint.for_person
        == f"{reached} --allow-domain c.example.com:443 (allow_domains=['c.example.com:443']) would help."
    )
    unknown = "502 a.example.com:443 can't be reached: its address was not found (Name or service not known)"
    assert hints_for(failed(unknown), some) == []
    assert hints_for(failed("Network is unreachable"), replace(ASKED, network=True)) == []
    (hint,) = hints_for(failed(SEABORN), replace(ASKED, packages_option=False))
    assert hint.for_person == "Hint: seaborn is not installed. --allow-pip (allow_pip=True) would help."


def test_too_little_memory_has_a_hint() -> None:
    (hint,) = hints_for(ExecutionResult(137, "", outcome="oom"), ASKED)
    assert hint.for_model.endswith("of memory. Work on less data at a time.")
    more = f"{2 * ASKED.memory_bytes // 1024**2}m"
    assert hint.for_person.endswith(f"of memory. --option memory={more} (memory='{more}') would help.")


def test_other_results_have_no_hints() -> None:
    assert hints_for(failed("ZeroDivisionError: division by zero"), ASKED) == []
    assert hints_for(failed("FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'"), ASKED) == []
    assert hints_for(CodeResult(exit_code=0, output="No space left on device"), ASKED) == []
    assert hints_for(failed(SEABORN), None) == []
    denied = ExecutionResult(1, SEABORN, outcome="denied")
    assert hints_for(denied, ASKED) == []


@pytest.mark.parametrize(
    "text",
    ["a: " * 10**6, "https://" * 10**6, "a." * 10**6, "PermissionError: [Errno 13] " * 10**5],
    ids=len,
)
def test_long_output_is_read(text: str) -> None:
    assert hints_for(failed(text), ASKED) == []


async def test_model_sees_hints_and_the_result_does_not(bubblewrap: None) -> None:
    client = scripted(python("import no_such_module"), "No.")
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        result = await CodeActAgent("actor", executor, model_client=client).run(task="Go.")
    last = str(received_by(client)[1][-1].content).rpartition("\n\n")[2]
    assert last == f"Hint: no_such_module is not installed. {NOT_INSTALLED}"
    (ran,) = [message for message in result.messages if isinstance(message, CodeExecutionEvent)]
    assert "Hint" not in ran.result.output
    assert ran.metadata["hints"] == "Hint: no_such_module is not installed. --allow-pip (allow_pip=True) would help."


async def test_reader_of_a_message_without_a_model_sees_hints(bubblewrap: None) -> None:
    async with BubblewrapCommandLineCodeExecutor() as executor:
        result = await CodeExecutorAgent("runner", executor).run(task=python("import no_such_module"))
    assert result.messages[-1].to_text().endswith(f"\n\nHint: no_such_module is not installed. {NOT_INSTALLED}")
    hint = "Hint: no_such_module is not installed. --allow-pip (allow_pip=True) would help."
    assert result.messages[-1].metadata["hints"] == hint
