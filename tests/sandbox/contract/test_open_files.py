"""What a script leaves open is written and closed at its end, as Python does it."""

import pytest

from tests.sandbox.sandboxes import out, run

SCRIPTS = pytest.mark.parametrize("backend", ["docker-process", "bubblewrap-process"], indirect=True, scope="module")


@SCRIPTS
@pytest.mark.parametrize(
    ("script", "name", "content"),
    [
        ("f = open('a.txt', 'w'); f.write('text')", "a.txt", b"text"),
        ("import csv\nf = open('a.csv', 'w', newline='')\ncsv.writer(f).writerow(['x', 1])", "a.csv", b"x,1\r\n"),
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
async def test_archives_left_open_are_complete(executor):
    await run(executor, "import zipfile; z = zipfile.ZipFile('a.zip', 'w'); z.writestr('in', 'text')")
    await run(executor, "import gzip; g = gzip.open('a.gz', 'wt'); g.write('text')")
    read = "import gzip, zipfile; print(zipfile.ZipFile('a.zip').read('in'), gzip.open('a.gz').read())"
    assert await out(executor, read) == "b'text' b'text'\n"


@SCRIPTS
async def test_finalizer_that_never_ends_is_stopped_by_the_deadline(make):
    executor = await make(timeout=1)
    endless = "class A:\n    def __del__(self):\n        while True: pass\na = A()\nprint('main')"
    result = await run(executor, endless)
    assert (result.outcome, result.output) == ("timeout", "main\n\n Timeout")
