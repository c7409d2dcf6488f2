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
from codeact_sandbox.tools.rich_values import RichType, check_table
from codeact_sandbox.types.tool import ToolArgumentError
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


def sent(data: bytes) -> dict[str, str]:
    """Write a value as a hostile sandbox would."""
    return {"codeact": "value", "data": base64.b64encode(data).decode()}


def array(header: str, data: bytes = bytes(8), version: bytes = b"\1\0") -> dict[str, str]:
    text = header.encode()
    return sent(b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data)


def typed(descr: str, shape: str, data: bytes = bytes(8)) -> dict[str, str]:
    return array(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n", data)


def table(dtypes: list[Any], *parts: bytes, columns: list[Any] | None = None, **changes: Any) -> dict[str, str]:
    """Write a table with one level of an index and columns of some dtypes."""
    sizes = [len(each) for each in parts[:-1]]
    header = {"index": [None], "names": [None], "dtypes": dtypes, "sizes": sizes, **changes}
    header["columns"] = list(range(len(dtypes) - 1)) if columns is None else columns
    return sent(json.dumps(header).encode() + b"\n" + b"".join(parts))


UNPICKLED = Path("/tmp/codeact-unpickled")


class Bomb:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return Path.touch, (UNPICKLED,)


@pytest.fixture(autouse=True)
def nothing_is_unpickled() -> Iterator[None]:
    yield
    assert not UNPICKLED.exists()


PICKLED = pickle.dumps(Bomb())
ONE = base64.b64decode(typed("'<i8'", "(1,)")["data"])
FORGED_ARRAYS = [
    typed("'|O'", "(1,)"),
    typed("'|O'", "(1,)", PICKLED),
    typed("[('a', 'O')]", "(1,)"),
    typed("[('a', '<f8')]", "(1,)"),
    typed("'<f8'", f"({10**9},)"),
    typed("'<f8'", "(-1, -1)"),
    typed("'<f8'", f"({2**63}, 2)"),
    typed("'<U0'", f"({2**28},)", b""),
    typed("'S0'", f"({2**40},)", b""),
    typed("'<f8'", "(1.0,)"),
    typed("'<f8'", "(1,) * 3"),
    typed("'<f8'", "__import__('os')"),
    typed("'<U2'", "(1,)", b"\xff" * 8),
    typed("'<U1'", "(1,)", b"\x00\xd8\x00\x00"),
    typed("'<f8'", "(1,)", bytes(16)),
    typed("'<f8'", "(1,)", bytes(7)),
    array("{" * 60_000),
    array("{}"),
    array("{}", version=b"\2\0"),
    table(["array"], ONE, b""),
    sent(b"PK\3\4" + bytes(30)),
    sent(PICKLED),
    sent(b""),
    sent(b"\xff\xff\xff\xff"),
    {"codeact": "value", "data": "no base64 é"},
    {"codeact": "other"},
    {"codeact": "file", "path": 5},
    ["text"],
    "text",
    None,
]
FORGED_TABLES = [
    sent(PICKLED),
    sent(b""),
    sent(b"[" * 300_000 + b"\n"),
    sent(b"{}\n"),
    table([], b""),
    table(["array"], ONE, b"", index=[]),
    table(["array"], ONE, b"", columns=[1, 2]),
    table(["array"], ONE, b"", sizes=[-5]),
    table(["array"], ONE, b"", sizes=[]),
    table(["array", "array"], ONE, base64.b64decode(typed("'<i8'", "(2,)", bytes(16))["data"]), b""),
    table(["array", "text"], ONE, b'"0"\n"a"\n"b"\n'),
    table(["array", "json"], ONE, b'"1"\n"' + b"[" * 20 + b'"\n'),
    table(["array", "json"], ONE, b'"1"\n"' + b"[" * 300_000 + b'"\n'),
    table(["array", "S99999999"], ONE, b'"1"\n"x"\n'),
    table(["array", 5], ONE, b'"1"\n"x"\n'),
    table(["array", "category"], ONE, b'"1"\n"x"\n'),
    table(["datetime64[ns, ../../etc/passwd]"], ONE, b""),
    table(["datetime64[ns, dateutil//etc/passwd]"], ONE, b""),
    table(["array"] * 20_000, *([ONE] * 20_000), b""),
]
FORGED_IMAGES = [
    sent(b"no image"),
    sent(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    sent(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack("!II", 2**31 - 1, 2**31 - 1) + b"\x08\x02\x00\x00\x00"),
    sent(b""),
]


PADDED_TABLES = {
    "rows with a column each": [{f"a{n}": 1} for n in range(2000)],
    "columns with a row each": {f"a{n}": {f"b{n}": 1} for n in range(2000)},
    "one long row": [[0] * 5000, *([[]] * 1000)],
    "one long column": {"a": [0] * 5000, **{f"b{n}": 0 for n in range(1000)}},
}


# Case I31.
@pytest.mark.parametrize(("name", "table"), list(PADDED_TABLES.items()))
def test_json_that_pandas_would_pad_to_a_huge_table_is_refused(name: Any, table: Any) -> None:
    with pytest.raises(ValueError, match="000 cells, far more than were sent"):
        check_table(table)


# Case I31.
def test_tables_with_gaps_are_accepted() -> None:
    check_table([{"a": 1}, {"b": 2}, {}])
    check_table({"a": [0] * 10_000, "b": "constant"})


# Case I31.
@pytest.mark.parametrize("forged", FORGED_ARRAYS, ids=range(len(FORGED_ARRAYS)))
async def test_a_forged_array_is_refused(forged: Any) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(ToolArgumentError):
        await RichType("array").load("values", forged, None)


# Case I31.
@pytest.mark.parametrize("forged", FORGED_TABLES, ids=range(len(FORGED_TABLES)))
async def test_a_forged_table_is_refused(forged: Any) -> None:
    pytest.importorskip("pandas")
    with pytest.raises(ToolArgumentError):
        await RichType("table").load("table", forged, None)


# Case I31.
@pytest.mark.parametrize("forged", FORGED_IMAGES, ids=range(len(FORGED_IMAGES)))
async def test_a_forged_image_is_refused(forged: Any) -> None:
    with pytest.raises(ToolArgumentError):
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
    for path in ("/proc/self/environ", "//proc/1/maps", "/proc/1/mem", "/proc/self/root/proc/1/maps",
                 "/tmp/../proc/1/environ", "/tmp/link", "/tmp/pipe", "/tmp/large",
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
