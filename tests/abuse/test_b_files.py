"""B. Escape through files: what is planted where the host writes, names, transfers, and what the host mounts."""

import asyncio
import contextlib
import os
import re
from pathlib import Path

import pytest

import codeact_sandbox
from autogen_codeact import executors
from autogen_codeact.executors import SandboxFileError
from codeact_sandbox.host.blocks import default_filename
from codeact_sandbox.types.languages import find_language
from tests.sandbox.sandboxes import block

from .canaries import SECRET, Canaries
from .subject import Subject, each_engine


def name_of(code: str) -> str:
    """The file that the executor will save a block to."""
    language = find_language("python")
    assert language is not None
    return default_filename(block(code).code, language)


# Case 33.
async def test_a_link_planted_in_a_mounted_folder_leads_the_host_nowhere(folder, subject, canaries):
    """The hole in AutoGen's executor: it writes the next block's code through the link."""
    await subject.start({"bind_dir": folder})
    names = [name_of("print('next')"), "named.py", "sub/deep.py"]
    code = f"""
    import os
    os.mkdir("/workspace/real")
    for name in {names[:2]!r}:
        if os.path.lexists(name): os.unlink(name)
        os.symlink({str(canaries.file)!r}, "/workspace/" + name)
    os.symlink({str(canaries.folder)!r}, "/workspace/sub")
    """
    await subject.out(code)
    assert (folder / "named.py").is_symlink()
    ran = [
        await subject.run(each)
        for each in ("print('next')", "# filename: named.py\nprint(1)", "# filename: sub/deep.py\nprint(1)")
    ]
    # In a session a block without a name is not saved at all.
    assert [each.outcome for each in ran] == ["ok" if subject.session else "error", "error", "error"]
    for name in ("named.py", "sub/deep.py"):
        with pytest.raises(SandboxFileError):
            await subject.executor.upload(Path(__file__), name if "/" in name else f"sub/{name}")
    assert canaries.file.read_text() == SECRET


# Case 33.
@pytest.mark.first_promise
@each_engine
async def test_a_link_on_the_host_is_replaced_and_its_target_untouched(subject: Subject, canaries: Canaries) -> None:
    await subject.start()
    (subject.work_dir / "result.txt").symlink_to(canaries.file)
    (subject.work_dir / "sub").symlink_to(canaries.folder)
    result = await subject.run(
        "import os; open('result.txt', 'w').write('mine'); os.mkdir('sub'); open('sub/canary.txt', 'w').write('x')"
    )
    stored = {item.name: item.path for item in result.artifacts if not item.name.startswith("tmp_code")}
    assert stored == {"result.txt": subject.work_dir / "result.txt", "sub/canary.txt": None}
    assert (subject.work_dir / "result.txt").read_text() == "mine"
    assert canaries.file.read_text() == SECRET


BAD_NAMES = {
    "../up.py": "has `..` in it",
    "/etc/x.py": "is absolute",
    "nul\0name.py": "control character",
    "-rf.py": "begins with `-`",
    "x" * 300 + ".py": "more than 255 bytes",
    ".": "names a folder|the workspace itself",
    "back\\slash.py": "backslash",
    "lone\udcff.py": "not valid Unicode|replac",
    ".codeact-part-1": "reserved",
}


# Case 34.
async def test_bad_names_are_a_clear_error(subject: Subject) -> None:
    for name, words in BAD_NAMES.items():
        result = await subject.run(f"# filename: {name}\nprint('ran')")
        assert (result.outcome, result.exit_code) == ("error", 1), (name, result)
        assert result.error is not None
        assert result.error.type == "BadFilename"
        assert re.search(words, result.output), (name, result.output)
        with pytest.raises((ValueError, SandboxFileError)):
            await subject.executor.upload(Path(__file__), name)
        with pytest.raises((ValueError, SandboxFileError)):
            await subject.executor.download(name, subject.work_dir / "got")
    assert not (subject.work_dir.parent / "up.py").exists()


RENAMEAT2 = {"x86_64": 316, "aarch64": 276}[os.uname().machine]
RACE = f"""
    import ctypes, os, threading, time
    os.makedirs("/workspace/d", exist_ok=True)
    os.makedirs("/tmp/elsewhere", exist_ok=True)
    open("/workspace/new", "w").write("mine")
    os.rename("/workspace/new", "/workspace/d/passwd")  # it is never seen empty
    os.symlink("/etc", "/workspace/link")
    os.symlink("/tmp/elsewhere", "/workspace/other")
    libc, here, exchange = ctypes.CDLL(None), -100, 2
    def swap():
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for link in (b"/workspace/link", b"/workspace/other"):
                for _ in range(2):
                    assert libc.syscall({RENAMEAT2}, here, b"/workspace/d", here, link, exchange) == 0
"""


# Case 35.
async def test_a_folder_swapped_for_a_link_during_transfers_leads_nowhere(subject: Subject, tmp_path: Path) -> None:
    await subject.start({"work_dir": None})
    racing = asyncio.ensure_future(
        subject.run(
            RACE + ("    threading.Thread(target=swap).start()" if subject.session else "    swap()"), timeout=20
        )
    )
    source = tmp_path / "source"
    source.write_text("from the host")
    got: set[str] = set()
    while not racing.done():
        await asyncio.sleep(0.05)
        for _ in range(20):
            with contextlib.suppress(SandboxFileError):
                await subject.executor.upload(source, "d/uploaded")
            with contextlib.suppress(SandboxFileError):
                got.add((await subject.executor.download("d/passwd", tmp_path / "got")).read_text())
        if subject.session and len(got) > 0:
            break
    assert (await racing).outcome == "ok"
    assert got <= {"mine"}, "the system's own file was read through the link"
    assert await subject.out("import os; print(os.listdir('/tmp/elsewhere'))") == "[]\n"
    if subject.session:
        await subject.out("import time; time.sleep(2)", timeout=10)  # until the swapping ends


# Case 36.
@each_engine
async def test_no_pipe_device_or_socket_is_downloaded(subject: Subject, tmp_path: Path) -> None:
    code = """
    import os, socket
    os.mkfifo("pipe"); os.mkdir("dir"); os.symlink("/dev/zero", "zero"); os.symlink("pipe", "to-pipe")
    made = socket.socket(socket.AF_UNIX); made.bind("socket")
    print(sorted(os.listdir(".")) != [])
    """
    assert await subject.out(code) == "True\n"
    for name in ("pipe", "dir", "zero", "to-pipe", "socket", "none"):
        with pytest.raises(SandboxFileError):
            await asyncio.wait_for(subject.executor.download(name, tmp_path / "got"), 30)
    listed = await asyncio.wait_for(subject.executor.list_files(), 30)
    assert not {"pipe", "zero", "to-pipe", "socket"} & set(listed)
    assert not {"pipe", "zero", "to-pipe", "socket"} & {path.name for path in subject.work_dir.iterdir()}


# Case 37.
def test_no_archive_of_a_sandbox_is_ever_opened() -> None:
    """Archives are made for the engine and for the sandbox. None is unpacked here: `tar_files` runs inside."""
    folders = [Path(str(package.__file__)).parent for package in (executors, codeact_sandbox)]
    sources = {path: path.read_text() for folder in folders for path in folder.rglob("*.py")}
    assert len(sources) > 30
    users = {path.name for path, text in sources.items() if re.search(r"\b(tarfile|zipfile|shutil\.unpack)", text)}
    assert users <= {"data_mounts.py", "image.py", "image_requests.py", "service.py", "tar_files.py"}
    words = r"put_archive|get_archive|extractall|\.extract\(|exec_create|pickle\.load"
    assert {path.name for path, text in sources.items() if re.search(words, text)} == {"data_mounts.py"}
