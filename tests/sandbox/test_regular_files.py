"""Opening files whose folder others may write to."""

import errno
import os
from pathlib import Path

import pytest

from codeact_sandbox.files.regular_files import open_regular


def test_regular_files_are_read_by_path_or_in_an_open_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open_regular(tmp_path / "file") as one, open_regular("file", folder=folder) as other:
            assert one.read() == other.read() == b"content"
    finally:
        os.close(folder)


def test_nothing_but_regular_files_is_opened_and_nothing_waits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    open_before = len(os.listdir("/proc/self/fd"))
    for name, number in (
        ("link", errno.ELOOP),
        ("folder", errno.EINVAL),
        ("pipe", errno.EINVAL),
        ("none", errno.ENOENT),
    ):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what matters
            open_regular(tmp_path / name)
        assert caught.value.errno == number, name
    assert len(os.listdir("/proc/self/fd")) == open_before
