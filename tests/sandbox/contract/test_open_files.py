"""What a script leaves open is written and closed at its end, as Python does it."""

import time
import zipfile

import pytest

from codeact_sandbox import AsyncSandbox
from tests.sandbox.sandboxes import out, run

SCRIPTS = pytest.mark.parametrize("backend", ["docker-process", "bubblewrap-process"], indirect=True, scope="module")


@SCRIPTS
@pytest.mark.parametrize(
    ("script", "name", "content"),
    [
        ("f = open('a.txt', 'w'); f.write('text')", "a.txt", b"text"),
        ("import sys\nf = open('exit', 'w'); f.write('kept'); sys.exit(3)", "exit", b"kept"),
        ("f = open('error', 'w'); f.write('kept'); 1/0", "error", b"kept"),
        ("open('m.py', 'w').write('f = open(\"module\", \"w\"); f.write(\"kept\")')\nimport m", "module", b"kept"),
        (
            "import os\nf = open('fork', 'w')\nif not os.fork():\n    f.write('child')\nelse:\n    os.wait()",
            "fork",
            b"child",
        ),
        (
            "class Log:\n    def __init__(self): self.me = self\n    def __del__(self): open(NAME, 'w').write('done')\n"
            "NAME = 'finalizer'\nlog = Log()",
            "finalizer",
            b"done",
        ),
    ],
)
async def test_script_leaves_whole_files(executor, script, name, content):
    await run(executor, script)
    assert await out(executor, f"print(open({name!r}, 'rb').read())") == f"{content}\n"


@SCRIPTS
async def test_finalizer_that_never_ends_is_stopped_by_the_deadline(make):
    executor = await make(timeout=1)
    endless = "class A:\n    def __del__(self):\n        while True: pass\na = A()\nprint('main')"
    result = await run(executor, endless)
    assert (result.outcome, result.output) == ("timeout", "main\n\n Timeout")


STOPS = pytest.mark.parametrize("backend", ["docker-session", "bubblewrap-session"], indirect=True, scope="module")
LEFT_OPEN = {
    "text": ("f = open('a', 'w'); f.write('kept')", "a", b"kept"),
    "value of a cell": ("open('a', 'w').write('kept'); g = open('b', 'w'); g.write('v'); g", "b", b"v"),
    "exit handler": ("import atexit; atexit.register(lambda: open('a', 'w').write('done'))", "a", b"done"),
    "finalizer": ("class Log:\n    def __del__(self): open('a', 'w').write('done')\nlog = Log()", "a", b"done"),
    "frame of an error": (
        "class Log:\n    def __del__(self): open('a', 'w').write('done')\ndef f():\n    log = Log()\n    1 / 0\nf()",
        "a",
        b"done",
    ),
    "thread that goes on": (
        "import threading, time; f = open('a', 'w'); f.write('kept')\n"
        "threading.Thread(target=lambda: time.sleep(99)).start()",
        "a",
        b"kept",
    ),
    "exit handler that hangs": (
        "import atexit, threading; f = open('a', 'w'); f.write('kept'); atexit.register(threading.Event().wait)",
        "a",
        b"kept",
    ),
}


@STOPS
@pytest.mark.parametrize(("code", "name", "content"), LEFT_OPEN.values(), ids=LEFT_OPEN)
async def test_stop_ends_a_session_like_an_interpreter(backend, tmp_path, code, name, content):
    executor = backend.make(work_dir=tmp_path)
    await run(executor, code)
    began = time.monotonic()
    await executor.stop()
    assert (tmp_path / name).read_bytes() == content
    assert time.monotonic() - began < 8


@STOPS
async def test_archives_that_a_session_left_open_are_complete_after_stop(backend, tmp_path):
    executor = backend.make(work_dir=tmp_path)
    await run(executor, "import zipfile; z = zipfile.ZipFile('a.zip', 'w'); z.writestr('in', 'text')")
    await executor.stop()
    assert zipfile.ZipFile(tmp_path / "a.zip").read("in") == b"text"


@pytest.mark.parametrize("backend", ["bubblewrap-process", "bubblewrap-session"], indirect=True, scope="module")
async def test_files_written_after_the_last_block_are_copied_by_stop(backend, tmp_path):
    executor = backend.make(work_dir=tmp_path)
    await executor.start()
    job = await executor.start("sleep 0.2; echo late > late.txt")
    await run(executor, "1")
    await job._process.wait()
    await executor.stop()
    assert (tmp_path / "late.txt").read_text() == "late\n"


async def test_stop_leaves_out_what_an_open_branch_would_have_undone(bubblewrap, tmp_path):
    box = AsyncSandbox("bubblewrap", work_dir=tmp_path)
    await box.start()
    async with box.branch() as branch:
        await branch.run("f = open('a', 'w'); f.write('x')")
        await box.stop()
    assert list(tmp_path.iterdir()) == []
