"""Commands with a local model."""

import signal
import socket
from pathlib import Path

import pytest

from tests.cli.support import codeact, in_bubblewrap, start, wait_until
from tests.cli.test_interrupt import command_lines


def test_options_of_local_models_are_checked() -> None:
    for arguments, message in [
        (
            ["--model", "gguf:/missing.gguf"],
            "There is no file /missing.gguf: gguf: stands before the path of a GGUF file.",
        ),
        (["--model", "gguf:/"], "/ is a folder: name a GGUF file in it."),
        (["--model", f"gguf:{__file__}"], "test_commands.py is no GGUF file: its first four bytes are not GGUF."),
        (["--model", "gpt-4o", "--context", "4096"], "--context goes with --model local or gguf:FILE"),
        (["--model", "local", "--context", "100"], "--context goes with --model local or gguf:FILE"),
        (
            ["--model", "local", "--base-url", "http://127.0.0.1:9"],
            "--base-url and --api-key-env go with a model's name",
        ),
    ]:
        done = codeact("run", *arguments, "a task")
        assert (done.status, message in done.err) in ((2, True), (1, True)), done


@pytest.mark.live
@pytest.mark.timeout(180)
def test_the_live_demo_solves_its_task() -> None:
    done = codeact("demo", "--live")
    assert done.status == 0
    assert "its code printed 55, which is right" in done.out
    assert "a model of 135M parameters is a toy" in " ".join(done.out.split())


@pytest.mark.live
@pytest.mark.timeout(180)
def test_a_run_with_the_local_model_ends_with_an_answer() -> None:
    task = "Write Python code that prints the sum of the numbers from 1 to 10."
    done = codeact("run", "--model", "local", "--context", 1024, task)
    assert done.status in (0, 1), done  # 1: its last message is code, or was cut off
    assert "\n55\n" in done.out
    assert "== The model's answer ==" in done.out


@pytest.mark.live
def test_a_context_that_is_too_small_is_an_error_that_says_what_to_do() -> None:
    done = in_bubblewrap("run", "--act", "--model", "local", "--context", 512, "word " * 400)
    assert done.status == 2
    assert "The task does not fit into the model's context: " in done.err
    assert "Give the model a larger context (--context TOKENS, or context= in Python) or a shorter task." in done.err


@pytest.mark.live
@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_is_stopped_while_the_model_is_fetched(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:  # which never answers
        address = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        env = {"XDG_CACHE_HOME": str(tmp_path), "PIP_INDEX_URL": address, "PIP_CONFIG_FILE": "/dev/null"}
        with start("run", "--model", "local", "--sandbox", "bubblewrap", "a task", env=env) as process:
            index.settimeout(60)
            connection, _ = index.accept()
            process.send_signal(number)
            assert process.wait(20) == 128 + number
        wait_until(lambda: not any(str(tmp_path).encode() in line for line in command_lines()), "the end of pip", 10)
        connection.close()
