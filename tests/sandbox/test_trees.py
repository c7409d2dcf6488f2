"""Operations on files and folders of a sandbox and copies of folders, on both backends and in both modes."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from codeact_sandbox import AsyncSandbox, SandboxFileError
from codeact_sandbox.files.operations import FileInfo, GrepMatch
from tests.cases import case
from tests.sandbox.test_exec import KINDS


@pytest_asyncio.fixture(params=KINDS, ids="-".join, scope="module", loop_scope="module")
async def started(request: pytest.FixtureRequest) -> AsyncIterator[AsyncSandbox]:
    backend, mode = request.param
    request.getfixturevalue("sandbox_image" if backend == "docker" else backend)
    async with AsyncSandbox(backend, mode=mode, timeout=30) as box:
        yield box


@pytest_asyncio.fixture(loop_scope="module")
async def box(started: AsyncSandbox) -> AsyncIterator[AsyncSandbox]:
    yield started
    await started.exec("rm -rf ./* ./.[!.]* /tmp/*")


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_edit_right_after_a_run_counts(box: AsyncSandbox) -> None:
    """Python would use its cached module if the source had the same size and second."""
    await box.write("sides.py", "total = 3 - 4")
    await box.exec("touch -d @1000 sides.py")
    assert (await box.exec(["python3", "-c", "import sides; print(sides.total)"])).stdout == "-1\n"
    assert await box.edit("sides.py", "-", "+") == 1
    await box.exec("touch -d @1000 sides.py")
    assert (await box.exec(["python3", "-c", "import sides; print(sides.total)"])).stdout == "7\n"
    assert (await box.run("import sides; print(sides.total)")).output == "7\n"
    assert await box.glob("__pycache__") == []


async def test_files_are_listed_described_and_read_in_part(box: AsyncSandbox) -> None:
    await box.write("data/b.txt", "0123456789")
    await box.write("/tmp/out/a.txt", "outside")
    await box.exec(
        "ln -s b.txt data/link; mkfifo data/pipe; mkdir data/empty; chmod 750 data/b.txt; touch -d @1000 data/b.txt"
    )
    found = await box.ls("data")
    assert [(each.path, each.type) for each in found] == [
        ("data/b.txt", "file"),
        ("data/empty", "folder"),
        ("data/link", "link"),
        ("data/pipe", "other"),
    ]
    assert await box.stat("data/b.txt") == FileInfo("data/b.txt", "file", 10, 0o750, 1000.0)
    assert [each.path for each in await box.ls()] == ["data"]
    assert [each.path for each in await box.ls("/tmp/out")] == ["/tmp/out/a.txt"]
    assert await box.read("data/b.txt", offset=3, size=4) == b"3456"
    assert await box.read("data/b.txt", offset=20) == b""
    assert await box.read("/tmp/out/a.txt") == b"outside"


async def test_files_are_found_by_name_and_by_content(box: AsyncSandbox) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/.hidden.py", "src/d.txt"):
        await box.write(name, f"first\nName {name}\n")
    await box.write("binary", b"name\n\0name\n")
    for pattern, expected in (
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/.hidden.py", "src/deep/c.py"]),
        ("src/*", ["src/b.py", "src/d.txt", "src/deep"]),
        ("src/**/c.py", ["src/deep/c.py"]),
        ("[!a].py", []),
    ):
        with case(pattern):
            assert sorted(await box.glob(pattern)) == expected
    assert await box.grep("name", "src", ignore_case=True, glob="b.*") == [GrepMatch("src/b.py", 2, "Name src/b.py")]
    assert await box.grep("n.me", "binary") == [GrepMatch("binary", 1, "name")]
    assert await box.grep("n.me", "binary", literal=True) == []
    assert len(await box.grep("first", max_matches=3)) == 3


async def test_files_are_edited_made_and_removed(box: AsyncSandbox) -> None:
    await box.write("a.txt", "one\r\ntwo ü\r\none\r\n")
    await box.exec(["chmod", "755", "a.txt"])
    assert await box.edit("a.txt", "two ü", "2") == 1
    assert await box.edit("a.txt", "one\r\n", "1\n", replace_all=True) == 2
    assert await box.read("a.txt") == b"1\n2\r\n1\n"
    assert (await box.stat("a.txt")).mode == 0o755
    await box.mkdir("new/folder")
    await box.mkdir("new/folder")
    await box.remove("a.txt")
    await box.remove("new", recursive=True)
    assert await box.ls() == []


async def test_what_can_not_be_done_says_why(box: AsyncSandbox) -> None:
    await box.write("folder/a.txt", "one one")
    await box.exec(["mkfifo", "pipe"])
    for number, call in (
        (errno.ENOENT, lambda: box.ls("missing")),
        (errno.ENOTDIR, lambda: box.ls("folder/a.txt")),
        (errno.ENOENT, lambda: box.stat("/missing")),
        (errno.EINVAL, lambda: box.read("pipe", size=1)),
        (errno.EINVAL, lambda: box.edit("folder/a.txt", "two", "")),
        (errno.EINVAL, lambda: box.edit("folder/a.txt", "one", "")),
        (errno.EINVAL, lambda: box.grep("(")),
        (errno.ENOTEMPTY, lambda: box.remove("folder")),
        (errno.EBUSY, lambda: box.remove(".", recursive=True)),
        (errno.EEXIST, lambda: box.mkdir("folder/a.txt")),
    ):
        with pytest.raises(SandboxFileError) as raised:
            await call()
        assert raised.value.errno == number, raised.value
    for call in (lambda: box.edit("folder/a.txt", "", "x"), lambda: box.ls(""), lambda: box.read("a", offset=-1)):
        with pytest.raises(ValueError, match=r"empty|negative"):
            await call()


async def test_a_folder_is_copied_both_ways(box: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep/empty").mkdir(parents=True)
    (source / "deep/run.sh").write_text("echo ok")
    (source / "deep/run.sh").chmod(0o755)
    (source / ("long" * 40)).write_bytes(b"x" * 1_000_000)
    os.symlink("deep/run.sh", source / "link")
    await box.put(source, "copy")
    assert (
        await box.exec("sh copy/link; ls -A copy/deep; cat copy/long* | wc -c")
    ).stdout == "ok\nempty\nrun.sh\n1000000\n"
    await box.remove("copy/link")
    assert await box.get("copy", tmp_path / "back") == tmp_path / "back"
    assert sorted(path.relative_to(tmp_path / "back").as_posix() for path in (tmp_path / "back").rglob("*")) == [
        "deep",
        "deep/empty",
        "deep/run.sh",
        "long" * 40,
    ]
    assert (tmp_path / "back/deep/run.sh").stat().st_mode & 0o777 == 0o755


async def test_a_folder_with_a_link_out_of_it_is_not_sent(box: AsyncSandbox, tmp_path: Path) -> None:
    os.symlink("../outside", tmp_path / "link")
    with pytest.raises(SandboxFileError, match="the link link leads out of the folder"):
        await box.put(tmp_path, "copy")
    assert not await box.glob("copy/*")


async def test_what_is_not_stored_on_the_host_is_named(box: AsyncSandbox, tmp_path: Path) -> None:
    await box.exec(
        "mkdir -p top/.git/hooks; echo x > top/.git/hooks/post; echo y > top/good; ln -s / top/root; touch 'top/a\nb'"
    )
    with pytest.raises(SandboxFileError) as raised:
        await box.get("top", tmp_path / "top")
    assert str(raised.value).startswith("[Errno 1] not all was copied: .git/hooks/post: not copied: `.git` ")
    assert r"; a\nb: not copied: " in str(raised.value)
    assert sorted(each.name for each in (tmp_path / "top").rglob("*")) == ["good"]
