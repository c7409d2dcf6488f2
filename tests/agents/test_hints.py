"""Hints in the observation, if code has met a limit of the sandbox."""

from __future__ import annotations

from dataclasses import replace

import pytest
from autogen_core.code_executor import CodeExecutor, CodeResult

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.hints import hints_for
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ErrorInfo, ExecutionResult, Limits
from tests.agents.codeact import python
from tests.agents.support import received_by, scripted
from tests.agents.test_environment import ASKED
from tests.executors import reused

SEABORN = "ModuleNotFoundError: No module named 'seaborn'\n"
NO_NETWORK = "Hint: the sandbox has no network. allow_domains=['{host}'] would allow a host, if whoever runs the sandbox sets it."
FULL = (
    "Hint: the disk is full. /workspace holds 256 MiB. Remove files that are not needed; limits=Limits(workspace=…, tmp=…) would "
    "give more room, if whoever runs the sandbox sets it."
)
WRITABLE = "Hint: code can write in /workspace and /tmp; other folders are read-only."
NOT_INSTALLED = (
    "It can't be installed from code: packages=['{name}'] installs it, and allow_pip=True would allow pip, if whoever runs the "
    "sandbox sets that."
)


def failed(output: str) -> CodeResult:
    return CodeResult(exit_code=1, output=output)


@pytest.mark.parametrize(
    ("output", "hint"),
    [
        (SEABORN, f"Hint: seaborn is not installed. {NOT_INSTALLED.format(name='seaborn')}"),
        (
            "ModuleNotFoundError: No module named 'cv2'",
            f"Hint: opencv-python is not installed. numpy can be used instead. {NOT_INSTALLED.format(name='opencv-python')}",
        ),
        (
            "ERROR: No matching distribution found for torch",
            f"Hint: torch is not installed. numpy can be used instead. {NOT_INSTALLED.format(name='torch')}",
        ),
        (
            "/tmp/code.sh: line 3: tree: command not found",
            "Hint: the command tree is not in the sandbox. Commands that are there: bash, git. image= can name an image that "
            "has it.",
        ),
        (
            "sh: 1: jq: not found",
            "Hint: the command jq is not in the sandbox. Commands that are there: bash, git. image= can name an image that "
            "has it.",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
            "Hint: the command ffmpeg is not in the sandbox. Commands that are there: bash, git. image= can name an image that "
            "has it.",
        ),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", NO_NETWORK.format(host="api.example.com")),
        ("curl: (6) Could not resolve host: Data.Example.org", NO_NETWORK.format(host="data.example.org")),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a.example.net', port=443): Max retries exceeded "
            "with url: / (Caused by NameResolutionError(': Failed to resolve ([Errno -2] Name or service not known)'))",
            NO_NETWORK.format(host="a.example.net"),
        ),
        ("OSError: [Errno 30] Read-only file system: '/etc/x'", WRITABLE),
        ("PermissionError: [Errno 13] Permission denied: '/root/x'", WRITABLE),
        ("OSError: [Errno 28] No space left on device", FULL),
    ],
)
def test_each_limit_has_a_hint(output: str, hint: str) -> None:
    assert hints_for(failed(f"Traceback\n{output}\n"), ASKED) == [hint]


def test_hints_follow_the_options() -> None:
    pip = replace(ASKED, pip=True, packages={"matplotlib": "3"})
    assert hints_for(failed(SEABORN), pip) == [
        "Hint: seaborn is not installed. matplotlib can be used instead. `pip install seaborn` in a shell block may install it."
    ]
    some = replace(ASKED, domains=("a.example.com",) * 7)
    assert hints_for(failed("Could not resolve host: b.example.com"), some) == [
        "Hint: the sandbox reaches only a.example.com, a.example.com, a.example.com, a.example.com, a.example.com and 2 more. "
        "allow_domains=['b.example.com'] would allow another host."
    ]
    assert hints_for(failed("Network is unreachable"), replace(ASKED, network=True)) == []
    assert hints_for(failed("Read-only file system: '/data/x.csv'"), replace(ASKED, data=True)) == [
        "Hint: /data is read-only. Copy files to /workspace to change them."
    ]
    assert hints_for(failed(SEABORN), replace(ASKED, packages_option=False)) == [
        "Hint: seaborn is not installed. It can't be installed from code: allow_pip=True would allow pip, if whoever runs the "
        "sandbox sets that."
    ]


def test_other_results_have_no_hints() -> None:
    assert hints_for(failed("ZeroDivisionError: division by zero"), ASKED) == []
    assert hints_for(failed("FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'"), ASKED) == []
    assert hints_for(CodeResult(exit_code=0, output="No space left on device"), ASKED) == []
    assert hints_for(failed(SEABORN), None) == []
    denied = ExecutionResult(1, SEABORN, outcome="denied")
    assert hints_for(denied, ASKED) == []


def test_command_that_fails_in_code_that_succeeds_has_a_hint() -> None:
    result = CodeResult(exit_code=0, output="bash: line 1: tree: command not found\nnext\n")
    assert len(hints_for(result, ASKED)) == 1


def test_exception_that_is_not_in_the_output_has_a_hint() -> None:
    result = ExecutionResult(1, "", outcome="error", error=ErrorInfo("ModuleNotFoundError", "No module named 'polars'"))
    assert hints_for(result, ASKED)[0].startswith("Hint: polars is not installed. pandas can be used instead.")


@pytest.mark.parametrize(
    "text", ["a: " * 10**6, "https://" * 10**6, "a." * 10**6, "PermissionError: [Errno 13] " * 10**5]
)
def test_long_output_is_read(text: str) -> None:
    assert hints_for(failed(text), ASKED) == []


async def test_model_sees_hints_and_the_result_does_not(bubblewrap: None) -> None:
    fills = python("open('big', 'wb').write(b'x' * 2**25)")
    writes, missing = python("open('/etc/x', 'w')"), python("import no_such_module")
    client = scripted(missing, writes, fills, "No.")
    async with reused.executor(
        BubblewrapCommandLineCodeExecutor, mode="session", limits=Limits(workspace="16m")
    ) as executor:
        result = await CodeActAgent("actor", executor, model_client=client).run(task="Go.")
    last = [str(call[-1].content).rpartition("\n\n")[2] for call in received_by(client)[1:]]
    assert last == [
        "Hint: no_such_module is not installed. It can't be installed from code: allow_pip=True would allow pip, if whoever runs "
        "the sandbox sets that.",
        WRITABLE,
        FULL.replace("256", "16"),
    ]
    assert not any("Hint" in message.result.output for message in result.messages if hasattr(message, "result"))


async def test_reader_of_a_message_without_a_model_sees_hints(bubblewrap: None) -> None:
    async with reused.executor(BubblewrapCommandLineCodeExecutor) as executor:
        result = await CodeExecutorAgent("runner", executor).run(task=python("open('/etc/x', 'w')"))
    assert result.messages[-1].to_text().endswith(f"\n\n{WRITABLE}")


async def test_executor_of_another_package_has_no_hints(executor: CodeExecutor) -> None:
    client = scripted(python("import no_such_module"), "No.")
    await CodeExecutorAgent("coder", executor, model_client=client).run(task="Go.")
    assert "Hint" not in str(received_by(client)[1][-1].content)
