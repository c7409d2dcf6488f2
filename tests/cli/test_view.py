"""`codeact view`, as a user runs it."""

import signal
import socket

import httpx
import pytest

from tests.runs.logs import lines, whole_run, write_log

from .support import codeact, start, wait_until

WAIT_S = 50


def stop(process, number=signal.SIGINT):
    """Send a signal; the status, the rest of the output, and what was said."""
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_view_prints_the_address_and_ends_at_once_with_a_reader_connected(tmp_path, number):
    write_log(tmp_path / "one", lines(whole_run()))
    with start("view", tmp_path, "--no-open") as process:
        url = process.stdout.readline().strip()
        with httpx.Client(base_url=url, timeout=WAIT_S) as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/runs/one").json()["outcome"] == "completed"
        assert stop(process, number) == (0, "", "")


def test_view_shows_kept_runs_by_default_and_the_last_one_by_name(tmp_path):
    state = {"XDG_STATE_HOME": str(tmp_path)}
    folder = tmp_path / "autogen-codeact/runs"
    write_log(folder / "20261122-174501-add-3f2a", lines(whole_run()))
    with start("view", "--no-open", env=state) as process:
        url = process.stdout.readline().strip()
        wait_until(lambda: httpx.get(f"{url}api/runs", timeout=WAIT_S).json()["runs"], "the list")
        assert [row["task"] for row in httpx.get(f"{url}api/runs", timeout=WAIT_S).json()["runs"]] == ["What is 6*7?"]
        stop(process)
    with start("view", "last", "--no-open", env=state) as process:
        assert process.stdout.readline().strip().endswith("/runs/20261122-174501-add-3f2a")
        stop(process)


def test_view_opens_a_browser_whose_arguments_do_not_have_the_address(tmp_path):
    browser, opened, made = tmp_path / "browser", tmp_path / "opened", tmp_path / "made"
    browser.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" > '{opened}'\n")  # the interpreter's path may have spaces
    browser.chmod(0o755)
    made.mkdir()
    with start("view", tmp_path, env={"BROWSER": f"{browser} %s", "TMPDIR": str(made)}) as process:
        url = process.stdout.readline().strip()
        wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"), "the browser", WAIT_S)
        (file,) = made.glob("*/*")
        assert opened.read_text() == f"{file.as_uri()}\n"
        assert [each.stat().st_mode & 0o777 for each in (file.parent, file)] == [0o700, 0o600]
        assert f'content="0;url={url}"' in file.read_text()
        assert stop(process) == (0, "", "")
    assert list(made.iterdir()) == []


def test_view_warns_of_addresses_that_others_can_reach(tmp_path):
    with start("view", tmp_path, "--no-open", "--host", "0.0.0.0") as process:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        status, out, err = stop(process)
        assert (status, out) == (0, "")
        assert err == (
            "codeact: warning: whoever reaches 0.0.0.0 and has this address sees the runs; the connection is not encrypted\n"
        )


def test_view_says_what_is_wrong(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        done = codeact("view", tmp_path, "--no-open", "--port", port)
    assert (done.status, done.out) == (2, "")
    why = f"can't listen on 127.0.0.1, port {port}: Address already in use. Choose others with --host and --port."
    assert done.err == f"codeact: The viewer {why}\n"
    done = codeact("view", tmp_path / "none", "--no-open")
    assert (done.status, done.out) == (2, "")
    assert "does not exist" in done.err


def test_view_without_the_extra_says_what_to_install(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no starlette', name='starlette')\n")
    done = codeact("view", tmp_path, "--no-open", env={"PYTHONPATH": str(tmp_path)})
    assert (done.status, done.out) == (2, "")
    assert done.err == "codeact: The viewer needs the extra `viewer`: pip install 'autogen-codeact[viewer]'\n"
