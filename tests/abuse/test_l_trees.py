"""L: file operations on trees that code has filled, and folders that hostile code sends to the host."""

import errno
import io
import os
import shutil
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox import AsyncSandbox, SandboxFileError
from codeact_sandbox.files.service import parse_answer
from codeact_sandbox.types.errors import SandboxStartError

# A link is made in a fifth of the time that a file takes.
FILL = """
import os
for folder in range(40):
    os.makedirs(f"tree/{folder // 10}/{folder % 10}")
    open(f"tree/{folder // 10}/{folder % 10}/0.txt", "w").write("x")
    for number in range(1, 1000):
        os.link(f"tree/{folder // 10}/{folder % 10}/0.txt", f"tree/{folder // 10}/{folder % 10}/{number}.txt")
"""


# Case L1.
@pytest.mark.timeout(150)
@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
async def test_a_tree_of_40000_files_is_searched_and_a_part_copied(
    request: pytest.FixtureRequest, backend: Any, tmp_path: Path
) -> None:
    request.getfixturevalue("default_image" if backend == "docker" else backend)
    async with AsyncSandbox(backend, mode="process", timeout=60, workspace="1g", files=300_000) as box:
        assert (await box.exec(["python3", "-c", FILL])).exit_code == 0
        assert len(await box.ls("tree/1")) == 10
        assert len(await box.glob("tree/2/?/1*.txt")) == 10 * 111
        assert len(await box.grep("x", "tree/1", max_matches=50)) == 50
        with pytest.raises(SandboxFileError, match=r"more than 20,000 entries.*narrower pattern"):
            await box.glob("**")
        if backend == "bubblewrap":  # once is enough: the host takes seconds to store them
            await box.get("tree/3", tmp_path / "tree")
            assert sum(len(files) for _, _, files in os.walk(tmp_path / "tree")) == 10_000
        await box.remove("tree", recursive=True)
        assert await box.ls() == []


# Case L2.
@pytest.mark.usefixtures("bubblewrap")
async def test_names_and_patterns_of_code_cost_only_their_own_operation(tmp_path: Path) -> None:
    async with AsyncSandbox("bubblewrap", timeout=3) as box:
        await box.run(
            "import os; os.makedirs(b'odd'); open(b'odd/\\xff\\xfe', 'w').close(); open('odd/a\\nb', 'w').close()"
        )
        await box.run("open('odd/many', 'w').write('a' * 40 + '\\n'); open('odd/wide', 'w').write('b' * 5_000_000)")
        assert [each.path for each in await box.ls("odd")] == ["odd/a\nb", "odd/many", "odd/wide", "odd/\udcff\udcfe"]
        assert (await box.grep("b", "odd/wide", max_matches=1))[0].line == "b" * 2000
        began = time.monotonic()
        with pytest.raises(SandboxFileError) as raised:
            await box.grep("(a+)+$b", "odd/many")
        assert raised.value.errno == errno.ETIMEDOUT
        assert time.monotonic() - began < 20
        with pytest.raises(SandboxFileError, match="256 bytes are not read into memory"):
            await box.read("/tmp/../workspace/odd/wide", 256)
        with pytest.raises(SandboxFileError, match=r"not all was copied: .*; "):
            await box.get("odd", tmp_path / "odd")
        assert sorted(os.listdir(tmp_path / "odd")) == ["many", "wide"]
        assert (await box.run("6 * 7")).value == 42


# Attack M9: what a folder with holes takes on the host's disk.
async def test_zeros_of_a_folder_take_no_space_and_others_at_most_half_of_the_free_space(
    bubblewrap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncSandbox("bubblewrap", timeout=60) as box:
        await box.run(
            "import os; os.mkdir('sparse'); f = open('sparse/a', 'wb'); f.write(b'x' * 9000); f.truncate(300_000_001)"
        )
        await box.get("sparse", tmp_path / "got")
        found = (tmp_path / "got/a").stat()
        assert (found.st_size, found.st_blocks * 512 < 1_000_000) == (300_000_001, True)
        assert (tmp_path / "got/a").read_bytes()[:9001] == b"x" * 9000 + b"\0"
        free = shutil.disk_usage(tmp_path)._replace(free=16_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
        with pytest.raises(SandboxFileError, match="more than half of the free space"):
            await box.get("sparse", tmp_path / "small")


# Attack M9: what an answer takes in memory.
@pytest.mark.parametrize(
    "answer",
    [
        b"[" + b"[]," * 200_000 + b"[]]",
        b'["' + b'","' * 200_000 + b'"]',
        b"[" + b"{}," * 200_000 + b"1]",
        b"[" * 200_000,
    ],
)
def test_an_answer_with_many_small_parts_is_not_parsed(answer: bytes) -> None:
    with pytest.raises(ValueError, match="too many parts"):
        parse_answer(bytearray(answer))


# Attack M9: a snapshot that a stranger has made.
@pytest.mark.parametrize("name", ["link/x", "link/deep/x", "inner/up/x"])
async def test_a_snapshot_writes_nothing_through_a_link(bubblewrap: None, tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        for link, target in (("link", "/tmp"), ("inner/up", "../../tmp")):
            header = tarfile.TarInfo(link)
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
        header = tarfile.TarInfo(name)
        header.size = 1
        archive.addfile(header, io.BytesIO(b"x"))
    with pytest.raises(SandboxStartError, match="a link is where a folder should be"):
        async with AsyncSandbox("bubblewrap", snapshot=tmp_path / "bad.tar.gz"):
            pass
