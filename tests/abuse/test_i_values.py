"""I30 to I32. Data that code must not write, and forged values for host tools."""

import base64
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from autogen_codeact.executors import Limits
from codeact_sandbox.tools.call_files import CallFiles, FileBudget
from codeact_sandbox.tools.function import HostTool
from codeact_sandbox.tools.rich_values import RichType, check_array, check_table
from codeact_sandbox.types.tool import ToolArgumentError
from tests.cases import case
from tests.sandbox.bubblewrapped import open_folder

from .subject import Subject, each_engine, one_kind

ATTACK = """
    import errno, os, subprocess
    done = []
    for path in ("/data/file.txt", "/data/folder/inner.txt", "/proc/self/root/data/file.txt",
                 "/skills/s/SKILL.md", "/skills/s"):
        for act in (lambda: open(path, "r+"), lambda: os.unlink(path), lambda: os.chmod(path, 0o777), lambda: os.utime(path),
                    lambda: os.rename(path, "/tmp/x"), lambda: os.symlink("/tmp", path + "2"), lambda: os.truncate(path, 0)):
            try:
                act()
                done.append(path)
            except OSError:
                pass
    subprocess.run("mount -o remount,rw /data; umount /data/file.txt; echo x > /data/file.txt; dd if=/dev/zero of=/data/new;"
                   "touch /skills/x",
                   shell=True, stderr=subprocess.DEVNULL)
    print(done, sorted(os.listdir("/data")), os.listdir("/skills"), os.listdir("/skills/s"))
"""


# Case I30.
@each_engine
async def test_nothing_in_data_and_skills_can_be_written(subject: Subject) -> None:
    with open_folder() as folder:
        (folder / "file.txt").write_text("kept")
        (folder / "file.txt").chmod(0o666)
        (folder / "folder").mkdir()
        (folder / "folder").chmod(0o777)
        (folder / "folder/inner.txt").write_text("kept")
        (folder / "folder/inner.txt").chmod(0o666)
        skill = folder / "s" / "SKILL.md"
        skill.parent.mkdir(mode=0o777)
        skill.write_text("---\nname: s\ndescription: x\n---\n")
        await subject.start({"data": [folder / "file.txt", folder / "folder"], "skills": [skill.parent]})
        assert await subject.out(ATTACK) == "[] ['file.txt', 'folder'] ['s'] ['SKILL.md']\n"
        assert [path.read_text() for path in folder.rglob("*.txt")] == ["kept", "kept"]


def packed(kind: str, value: Any, *blobs: bytes, sizes: Any = None) -> dict[str, str]:
    """Write a value as a hostile sandbox would."""
    header = json.dumps(
        {"kind": kind, "value": value, "sizes": [len(b) for b in blobs] if sizes is None else sizes}
    ).encode()
    data = struct.pack("!I", len(header)) + header + b"".join(blobs)
    return {"codeact": "value", "data": base64.b64encode(data).decode()}


UNPICKLED = Path("/tmp/codeact-unpickled")


class Bomb:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return Path.touch, (UNPICKLED,)


@pytest.fixture(autouse=True)
def nothing_is_unpickled() -> Iterator[None]:
    yield
    assert not UNPICKLED.exists()


EIGHT = bytes(8)
PICKLED = pickle.dumps(Bomb())
RANGE = {"range": [0, 1, 1], "names": [None]}
FORGED_ARRAYS = [
    packed("array", {"dtype": "|O", "shape": [1]}, EIGHT),
    packed("array", {"dtype": "O", "shape": [len(PICKLED)]}, PICKLED),
    packed("array", {"dtype": [["a", "O"]], "shape": [1]}, EIGHT),
    packed("array", {"dtype": "<f8, O", "shape": [1]}, EIGHT),
    packed("array", {"dtype": "<f8", "shape": [10**9]}, EIGHT),
    packed("array", {"dtype": "<f8", "shape": [-1, -1]}, EIGHT),
    packed("array", {"dtype": "<f8", "shape": [2**63, 2]}, EIGHT),
    packed("array", {"dtype": "<U0", "shape": [2**28]}),
    packed("array", {"dtype": "S0", "shape": [2**40]}),
    packed("array", {"dtype": "<f8", "shape": [1.0]}, EIGHT),
    packed("array", {"dtype": "<f8", "shape": [1] * 10_000}, EIGHT),
    packed("array", {"dtype": "<U2", "shape": [1]}, b"\xff" * 8),
    packed("array", {"dtype": "<U1", "shape": [1]}, b"\x00\xd8\x00\x00"),
    packed("array", {"dtype": "<f8", "shape": [1]}, EIGHT, sizes=[10**12]),
    packed("array", {"dtype": "<f8", "shape": [1]}, EIGHT, sizes="many"),
    packed("array", {"dtype": "<f8", "shape": [1]}, EIGHT, EIGHT),
    packed("array", ["no", "object"], EIGHT),
    packed("table", {"dtype": "<f8", "shape": [1]}, EIGHT),
    {"codeact": "value", "data": base64.b64encode(PICKLED).decode()},
    {"codeact": "value", "data": "no base64 é"},
    {"codeact": "value", "data": ""},
    {"codeact": "value", "data": base64.b64encode(b"\xff\xff\xff\xff").decode()},
    {"codeact": "other"},
    {"codeact": "file", "path": 5},
    "text",
    None,
]
FORGED_TABLES = [
    packed("table", {"columns": RANGE, "index": RANGE, "data": []}),
    packed("table", {"columns": {**RANGE, "range": [0, 10**15, 1]}, "index": RANGE, "data": []}),
    packed("table", {"columns": {**RANGE, "range": [0, 0, 0]}, "index": RANGE, "data": []}),
    packed("table", {"columns": RANGE, "index": RANGE, "data": [{"type": "pickle"}]}, PICKLED),
    packed(
        "table",
        {"columns": RANGE, "index": RANGE, "data": [{"type": "text", "dtype": "str", "count": 1}]},
        b"\xff\xff\xff\x7f",
        b"",
    ),
    packed("table", {"columns": RANGE, "index": RANGE, "data": [{"type": "objects"}]}, b"[" * 20),
    packed("table", {"columns": RANGE, "index": RANGE, "data": [{"type": "objects"}]}, b"[" * 300_000),
    packed(
        "table",
        {"columns": RANGE, "index": {**RANGE, "range": [0, 600_000, 1]}, "data": [{"type": "objects"}]},
        b"[" + b"1," * 599_999 + b"1]",
    ),
    packed("table", {"columns": {"levels": [], "names": []}, "index": RANGE, "data": []}),
    packed(
        "table",
        {
            "columns": RANGE,
            "index": RANGE,
            "data": [{"type": "moments", "timezone": "../../etc/passwd", "values": {"dtype": "<M8[ns]", "shape": [1]}}],
        },
        EIGHT,
    ),
]
FORGED_IMAGES = [
    packed("image", None, b"no image"),
    packed("image", None, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    packed(
        "image",
        None,
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack("!II", 2**31 - 1, 2**31 - 1) + b"\x08\x02\x00\x00\x00",
    ),
    packed("image", None),
]


PADDED_TABLES = {
    "rows with a column each": [{f"a{n}": 1} for n in range(2000)],
    "columns with a row each": {f"a{n}": {f"b{n}": 1} for n in range(2000)},
    "one long row": [[0] * 5000, *([[]] * 1000)],
    "one long column": {"a": [0] * 5000, **{f"b{n}": 0 for n in range(1000)}},
}


# Case I31.
def test_json_that_pandas_would_pad_to_a_huge_table_is_refused() -> None:
    for name, table in PADDED_TABLES.items():
        with case(name), pytest.raises(ValueError, match="000 cells, far more than were sent"):
            check_table(table)


# Case I31.
def test_json_that_numpy_would_pad_to_a_huge_array_is_refused() -> None:
    with pytest.raises(ValueError, match="characters, far more than were sent"):
        check_array([["x" * 100_000], *([[""]] * 500)])


# Case I31.
def test_tables_and_arrays_with_gaps_are_accepted() -> None:
    check_table([{"a": 1}, {"b": 2}, {}])
    check_table({"a": [0] * 10_000, "b": "constant"})
    check_array([[0.5] * 1000] * 20)
    check_array(["short", "a" * 100, 5] * 1000)
    check_array(3)


# Case I31.
async def test_a_forged_array_is_refused() -> None:
    pytest.importorskip("numpy")
    for forged in FORGED_ARRAYS:
        with case(forged), pytest.raises(ToolArgumentError):
            await RichType("array").load("values", forged, None)


# Case I31.
async def test_a_forged_table_is_refused() -> None:
    pytest.importorskip("pandas")
    for forged in FORGED_TABLES:
        with case(forged), pytest.raises(ToolArgumentError):
            await RichType("table").load("table", forged, None)


# Case I31.
async def test_a_forged_image_is_refused() -> None:
    for forged in FORGED_IMAGES:
        with case(forged), pytest.raises(ToolArgumentError):
            await RichType("image").load("image", forged, None)


def size(file: Path) -> int:
    """Return the size of a file."""
    return file.stat().st_size


def width(image: Image.Image) -> int:
    """Return the width of an image."""
    return image.width


FORGE = """
    import host_tools, os
    os.symlink("/proc/self/environ", "/tmp/link")
    os.mkfifo("/tmp/pipe")
    open("/tmp/large", "wb").truncate(10**12) if os.statvfs("/tmp").f_bsize else None
    def attempt(tool, path):
        try:
            return host_tools._call(tool, {"file" if tool == "size" else "image": {"codeact": "file", "path": path}})
        except Exception as error:
            return type(error).__name__
    for path in ("/proc/self/environ", "/proc/1/mem", "/tmp/../proc/1/environ", "/tmp/link", "/tmp/pipe", "/tmp/large",
                 "/dev/zero", "/sys/kernel/notes", "etc/passwd", "", "/tmp", "/tmp/missing", "/nul\\0"):
        assert attempt("size", path) not in (0, 1) and isinstance(attempt("size", path), str), path
        assert isinstance(attempt("width", path), str), path
    print("refused")
"""


# Case I32.
@one_kind
async def test_a_forged_path_gives_a_tool_no_file(subject: Subject) -> None:
    await subject.start({"tools": [size, width], "limits": Limits(memory="256m", tmp="16m")})
    assert await subject.out(FORGE, timeout=20) == "refused\n"


# Case I32.
async def test_a_tool_called_without_a_sandbox_takes_no_path() -> None:
    tool = HostTool(size)
    with pytest.raises(ToolArgumentError, match="a file can be exchanged only with the code of a running block"):
        await tool.run({"file": {"codeact": "file", "path": "/etc/passwd"}})


# Case I32.
async def test_the_budget_of_a_block_is_given_back() -> None:
    budget = FileBudget(10)
    files = CallFiles(None, budget, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="may exchange 10 bytes as files at a time"):
        await files.write("/tmp/x", bytes(11))
    assert budget.used == 0
    files._take(10)
    await files.close()
    assert budget.used == 0
