"""Branches of a session: kept, or as if they had not been; and snapshots of a workspace as files."""

import asyncio
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox import (
    AsyncSandbox,
    HostTool,
    Limits,
    Sandbox,
    SandboxDied,
    SandboxError,
    SandboxStartError,
    Unsupported,
)
from codeact_sandbox.files.operations import FileInfo
from tests.cases import case
from tests.sandbox.test_exec import KINDS

# What a branch does is the same code for both; how a process is copied and its files are put back is not.
ON_BUBBLEWRAP = pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
SHOW = "import os, subprocess; print(x, sorted(os.listdir()), open('data.txt').read())"


def test_a_branch_is_kept_or_leaves_no_trace(backend: Any, tmp_path: Path) -> None:
    with Sandbox(backend, work_dir=tmp_path) as box:
        box.write("data.txt", "before")
        box.exec("mkdir -p empty; ln -s data.txt link; chmod 700 data.txt")
        box.run("x = 1; print(x)")
        before = box.run(SHOW).output
        assert before == "1 ['data.txt', 'empty', 'link'] before\n"
        with box.branch() as attempt:
            lost = "import os; x = 2; os.remove('link'); os.rmdir('empty'); open('data.txt', 'w').write('branch')"
            assert attempt.run(lost + "; open('new.txt', 'w').write('new')").exit_code == 0
            assert attempt.run("import subprocess; p = subprocess.Popen(['sleep', '3917'])").exit_code == 0
            assert attempt.run(SHOW).output == "2 ['data.txt', 'new.txt'] branch\n"
            assert sorted(os.listdir(tmp_path)) == ["data.txt", "empty"]
        after = box.run(SHOW)
        assert (after.output, after.artifacts) == (before, ())
        assert box.exec("cat /proc/*/cmdline | grep -ac 391[7]").stdout == "0\n"
        assert (box.stat("data.txt").mode, (tmp_path / "data.txt").read_text()) == (0o700, "before")
        with box.branch() as attempt:
            attempt.run("x = 3; open('new.txt', 'w').write('kept'); open('data.txt', 'w').write('after')")
            attempt.keep()
            with pytest.raises(SandboxError, match="the branch is over"):
                attempt.run("1")
        assert box.run(SHOW).output == "3 ['data.txt', 'empty', 'link', 'new.txt'] after\n"
        assert {name: (tmp_path / name).read_text() for name in ("data.txt", "new.txt")} == {
            "data.txt": "after",
            "new.txt": "kept",
        }


def test_files_that_the_session_has_open_are_the_ones_that_are_put_back(backend: Any) -> None:
    with Sandbox(backend) as box:
        box.run(
            "import os, sqlite3; base = sqlite3.connect('base.db'); base.execute('create table t (x)'); base.commit()\n"
            "os.mkdir('sub'); log = open('sub/log', 'a'); print('before', file=log, flush=True); os.chmod('sub/log', 0o400)"
        )
        with box.branch() as attempt:
            code = "base.execute('insert into t values (1)'); base.commit(); print('branch', file=log, flush=True)"
            assert attempt.run(code).exit_code == 0
        kept = box.run(
            "base.execute('insert into t values (2)'); base.commit(); print('after', file=log, flush=True)\n"
            "print(sqlite3.connect('base.db').execute('select x from t').fetchall(), open('sub/log').read().split(), "
            "oct(os.stat('sub/log').st_mode), sorted(os.listdir('.')))"
        )
        assert kept.output == "[(2,)] ['before', 'after'] 0o100400 ['base.db', 'sub']\n"
        before = box.run("print(sorted(os.walk('.')), open('base.db', 'rb').read(), open('sub/log').read())").output
        for code in (
            "os.remove('sub/log'); os.remove('base.db'); open('base.db', 'w').write('broken')",
            "os.rename('base.db', 'sub/log'); os.link('sub/log', 'base.db'); os.chmod('sub', 0)",
            "os.remove('base.db'); os.mkdir('base.db'); os.symlink('/etc/passwd', 'base.db/log'); os.chmod('base.db', 0)",
        ):
            with case(code), box.branch() as attempt:
                assert attempt.run(code).exit_code == 0
            again = box.run("print(sorted(os.walk('.')), open('base.db', 'rb').read(), open('sub/log').read())").output
            assert again == before


@ON_BUBBLEWRAP
def test_blocks_that_fail_in_a_branch_leave_the_session_as_it_was(backend: Any) -> None:
    with Sandbox(backend) as box:
        box.run("x = 1; open('data.txt', 'w').write('before')")
        for code, outcome in (
            ("x = 2; raise ValueError", "error"),
            ("x = 2; open('data.txt', 'w').write('no'); import os; os.kill(os.getpid(), 9)", "crashed"),
            ("x = 2; import time\nwhile True: time.sleep(1)", "timeout"),
        ):
            with case(outcome), box.branch() as attempt:
                assert attempt.run(code, timeout=2).outcome == outcome
            assert box.run(SHOW).output == "1 ['data.txt'] before\n"
        attempt = box.branch().__enter__()
        attempt.run("x = 5")
        attempt.__exit__(KeyError)
        for _ in range(20):
            with box.branch() as attempt:
                attempt.run("x += 1")
        assert box.run(SHOW).output == "1 ['data.txt'] before\n"


@ON_BUBBLEWRAP
def test_only_the_branch_itself_uses_the_sandbox(backend: Any, tmp_path: Path) -> None:
    with Sandbox(backend) as box:
        box.run("x = 1")
        with box.branch() as attempt:
            for use in (
                lambda: box.run("x = 2"),
                lambda: box.exec("true"),
                lambda: box.start("sleep 60"),
                lambda: box.write("a", "b"),
                box.checkpoint,
                box.rollback,
                box.branch().__enter__,
            ):
                with pytest.raises(Unsupported, match="a branch is open"):
                    use()
            attempt.keep()
        job = box.start("sleep 60")
        with pytest.raises(Unsupported, match="commands"):
            box.branch().__enter__()
        job.kill()
        assert box.run("print(x)").output == "1\n"
    with Sandbox(backend, limits=Limits(memory="256m")) as box:
        box.run("x = b'1' * (190 * 2**20)")
        with pytest.raises(Unsupported, match="leaves no room for a copy"):
            box.branch().__enter__()
        assert box.run("print(len(x))").output == "199229440\n"
    with pytest.raises(Unsupported, match="effects outside"), Sandbox(backend, bind_dir=tmp_path).branch():
        pass
    with Sandbox(backend, mode="process") as box, pytest.raises(Unsupported, match="process mode"):
        box.branch().__enter__()


@ON_BUBBLEWRAP
def test_a_sandbox_that_ends_in_a_branch(backend: Any, tmp_path: Path) -> None:
    with Sandbox(backend, work_dir=tmp_path) as box:
        (tmp_path / "data.txt").write_text("before")
        attempt = box.branch().__enter__()
        attempt.run("open('data.txt', 'w').write('branch')")
        client = box._inner.client
        assert client is not None
        client.stop_blocking()
        with pytest.raises(SandboxDied, match="as before the branch"):
            attempt.__exit__(None)
        assert box.run("print(open('data.txt').read())").output == "before\n"
        with box.branch() as attempt:
            attempt.run("open('data.txt', 'w').write('branch')")
            box.restart()
            with pytest.raises(SandboxError, match="the branch is over"):
                attempt.run("1")
        assert box.run("print(open('data.txt').read())").output == "before\n"


@ON_BUBBLEWRAP
async def test_host_tools_are_refused_in_a_branch_unless_they_are_safe(backend: Any) -> None:
    made = []

    def send(text: str) -> str:
        """Send a text."""
        made.append(text)
        return text

    def look(text: str) -> str:
        """Look a text up."""
        return text.upper()

    async with AsyncSandbox(backend, tools=[send, HostTool(look, branch_safe=True)]) as box:
        async with box.branch() as attempt:
            assert (await attempt.run("print(look('a'))")).output == "A\n"
            refused = await attempt.run("send('a')")
            assert (refused.exit_code, "can't be called in a branch" in refused.output, made) == (1, True, [])
        assert (await box.run("print(send('b'))")).output == "b\n"


@ON_BUBBLEWRAP
async def test_a_branch_whose_end_is_cancelled_never_becomes_the_session(backend: Any, tmp_path: Path) -> None:
    async with AsyncSandbox(backend, work_dir=tmp_path) as box:
        attempt = await box.branch().__aenter__()
        await attempt.run("x = 2; open('data.txt', 'w').write('branch')")
        leaving = asyncio.create_task(attempt.__aexit__(None))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        after = await box.run("import os; print('x' in globals(), os.listdir())")
        assert (after.state, after.output, os.listdir(tmp_path)) == ("lost", "False []\n", [])


@pytest.mark.parametrize(("backend", "mode"), KINDS)
def test_a_snapshot_is_the_workspace_of_another_sandbox(
    request: pytest.FixtureRequest, backend: Any, mode: str, tmp_path: Path
) -> None:
    request.getfixturevalue("sandbox_image" if backend == "docker" else backend)
    target = tmp_path / "snapshot.tar.gz"
    with Sandbox(backend, mode=mode) as box:
        box.write("a/b.txt", "kept")
        box.exec("ln -s a/b.txt link; mkdir empty; chmod 700 a/b.txt; touch -d @1000 a/b.txt")
        assert box.snapshot(target) == target
        with tarfile.open(box.snapshot(tmp_path / "less.tar.gz", exclude=["a", "emp"])) as less:
            assert less.getnames() == ["empty", "link"]
        Path(less.name).unlink()
    with Sandbox(backend, mode=mode, snapshot=target) as box:
        assert [(each.path, each.type) for each in box.ls()] == [("a", "folder"), ("empty", "folder"), ("link", "link")]
        assert box.stat("a/b.txt") == FileInfo("a/b.txt", "file", 4, 0o700, 1000.0)
        assert box.run("print(open('link').read())").output == "kept\n"
        assert Path(box.work_dir, "a/b.txt").read_text() == "kept"
    whole = target.read_bytes()
    for content, reason in ((whole[:-12], "broken or cut"), (b"hello", "broken or cut"), (None, "No such file")):
        target.write_bytes(content) if content is not None else target.unlink()
        with case(reason), pytest.raises(SandboxStartError, match=f"could not be restored: .*{reason}"):
            Sandbox(backend, mode=mode, snapshot=target).start()
    with pytest.raises(ValueError, match="leave out work_dir= and bind_dir="):
        Sandbox(backend, snapshot=target, work_dir=tmp_path)
    assert os.listdir(tmp_path) == []
