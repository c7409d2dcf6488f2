"""Snapshots: the workspace of a sandbox as a file, which another sandbox starts with."""

import os
import tarfile
from pathlib import Path

import pytest

from codeact_sandbox import Sandbox, SandboxStartError
from codeact_sandbox.files.operations import FileInfo
from tests.cases import case
from tests.sandbox.test_exec import KINDS


@pytest.mark.parametrize(("backend", "mode"), KINDS)
def test_a_snapshot_is_the_workspace_of_another_sandbox(
    request: pytest.FixtureRequest, backend: str, mode: str, tmp_path: Path
) -> None:
    request.getfixturevalue("sandbox_image" if backend == "docker" else backend)
    target = tmp_path / "snapshot.tar.gz"
    with Sandbox(backend, mode=mode) as box:  # type: ignore[arg-type]
        box.write("a/b.txt", "kept")
        box.exec("ln -s a/b.txt link; mkdir empty; chmod 700 a/b.txt; touch -d @1000 a/b.txt")
        assert box.snapshot(target) == target
        with tarfile.open(box.snapshot(tmp_path / "less.tar.gz", exclude=["a", "emp"])) as less:
            assert less.getnames() == ["empty", "link"]
        Path(less.name).unlink()
    with Sandbox(backend, mode=mode, snapshot=target) as box:  # type: ignore[arg-type]
        assert [(each.path, each.type) for each in box.ls()] == [("a", "folder"), ("empty", "folder"), ("link", "link")]
        assert box.stat("a/b.txt") == FileInfo("a/b.txt", "file", 4, 0o700, 1000.0)
        assert box.run("print(open('link').read())").output == "kept\n"
        assert Path(box.work_dir, "a/b.txt").read_text() == "kept"
    whole = target.read_bytes()
    for content, reason in ((whole[:-12], "broken or cut"), (b"hello", "broken or cut"), (None, "No such file")):
        target.write_bytes(content) if content is not None else target.unlink()
        with case(reason), pytest.raises(SandboxStartError, match=f"could not be restored: .*{reason}"):
            Sandbox(backend, mode=mode, snapshot=target).start()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave out work_dir= and bind_dir="):
        Sandbox(backend, snapshot=target, work_dir=tmp_path)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []
