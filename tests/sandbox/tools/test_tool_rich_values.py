"""Host tools that take and return arrays, tables, images and files."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NewType

import pytest
import pytest_asyncio
from autogen_core.tools import FunctionTool
from PIL import Image
from pydantic import BaseModel, FilePath

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ToolLimits
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.executors.tools.base_tool import AutoGenTool
from codeact_sandbox.tools.function import HostTool
from codeact_sandbox.tools.rich_values import rich_type
from tests.cases import case
from tests.sandbox.sandboxes import out, run

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")

seen: list[Any] = []


async def scale(values: numpy.typing.NDArray[numpy.float64], by: float = 2) -> numpy.ndarray:
    """Multiply numbers."""
    seen.append(values)
    return (values * by).astype(float)


async def big(count: int) -> numpy.ndarray:
    """Return many numbers."""
    return numpy.arange(count, dtype="int32").reshape(-1, 2)


async def summary(table: pandas.DataFrame, other: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return the table as it was, with one more column."""
    seen.append(table)
    assert other is None
    return table.assign(more=range(len(table)))


async def same(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table."""
    return table


async def turn(image: Image.Image) -> Image.Image:
    """Turn an image."""
    seen.append(image)
    return image.rotate(90, expand=True)


async def count_lines(file: Annotated[Path, "A text file."]) -> int:
    """Count the lines of a file."""
    seen.append(file)
    return len(file.read_text().splitlines())


async def export(name: str) -> Path:
    """Return a file."""
    return REPORTS[name]


REPORTS: dict[str, Path] = {}


@pytest.fixture(scope="module", autouse=True)
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("reports")
    (folder / "year.csv").write_text("a,b\n" * 200_000)
    (folder / "huge.bin").write_bytes(bytes(9 * 1024**2))
    (folder / "folder").mkdir()
    REPORTS.update({each.name: each for each in folder.iterdir()}, gone=folder / "gone.csv")
    yield folder
    REPORTS.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(sandbox_image: str) -> AsyncIterator[SandboxCodeExecutor]:
    tools = [scale, big, summary, same, turn, count_lines, export]
    limits = ToolLimits(file_bytes="8m")
    async with DockerCommandLineCodeExecutor(mode="session", tools=tools, tool_limits=limits, timeout=30) as started:
        yield started


def test_annotations_are_recognised() -> None:
    def text(annotation: Any) -> str | None:
        found = rich_type(annotation)
        return found.text if found is not None else None

    assert text(numpy.ndarray) == text(numpy.typing.NDArray[numpy.int8]) == "numpy.ndarray"
    assert text(pandas.DataFrame | None) == "pandas.DataFrame | None"
    assert [text(each) for each in (str, list[str], dict[str, int], list, Any, None, Path | str)] == [None] * 7


PathName = NewType("PathName", Path)


@dataclass
class Holder:
    files: dict[str, Path]


class Model(BaseModel):
    file: FilePath


@pytest.mark.parametrize(
    "kind",
    [
        list[Path],
        tuple[Path, ...],
        set[Path] | None,
        list[dict[str, Path]],
        Path | int,
        PathName,
        os.PathLike[str],
        Holder,
        list[Model],
    ],
)
def test_a_path_within_another_type_is_refused_when_the_tool_is_made(kind: Any) -> None:
    """It would be a file of the host that the code names."""

    async def tool(value):  # type: ignore[no-untyped-def]
        """Take a value."""

    tool.__annotations__["value"] = kind
    with pytest.raises(ValueError, match="takes a path within another type"):
        HostTool(tool)
    with pytest.raises(ValueError, match="takes a path within another type"):
        AutoGenTool(FunctionTool(tool, "Take a value."))


@pytest.mark.asyncio(loop_scope="module")
async def test_signatures_name_the_classes(executor: SandboxCodeExecutor) -> None:
    shown = await out(executor, "import inspect; print(inspect.signature(summary)); help(count_lines)")
    assert [line.strip() for line in shown.splitlines() if line.strip()] == [
        "(table: pandas.DataFrame, other: pandas.DataFrame | None = None) -> pandas.DataFrame",
        "Help on function count_lines in module host_tools:",
        "count_lines(file: pathlib.Path) -> int",
        "Count the lines of a file.",
        "Args:",
        "file: A text file.",
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_arrays_keep_dtype_and_shape(executor: SandboxCodeExecutor) -> None:
    code = """
        import numpy as np
        made = scale(np.arange(6, dtype=">f4").reshape(2, 3))
        large = big(200_000)
        print(made.dtype, made.tolist(), large.dtype, large.shape, large[-1].tolist(), scale([1, 2]).tolist())
    """
    expected = "float64 [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] int32 (100000, 2) [199998, 199999] [2.0, 4.0]\n"
    assert await out(executor, code) == expected
    assert [(each.dtype.str, each.shape) for each in seen[-2:]] == [(">f4", (2, 3)), ("<i8", (2,))]


@pytest.mark.asyncio(loop_scope="module")
async def test_tables_keep_their_dtypes(executor: SandboxCodeExecutor) -> None:
    code = """
        import os
        import pandas as pd
        table = pd.DataFrame({
            "text": ["a", None, "ü"], "number": [1, 2, 3], "share": [0.5, None, 1.5], "flag": [True, False, True],
            "day": pd.to_datetime(["2026-01-01", None, "2026-01-03"]), "whole": pd.array([1, None, 3], dtype="Int64"),
            "kind": pd.Categorical(["x", "y", "x"]), "when": pd.date_range("2026", periods=3, tz="Europe/Paris"),
        }).set_index("number")
        back = summary(table)
        pd.testing.assert_frame_equal(back.drop(columns="more"), table.astype({"kind": object}))
        index = pd.MultiIndex.from_product([["a"], [1, 2, 3]], names=["p", None])
        levels = pd.DataFrame({("x", "y"): [1.5, 2, 3]}, index=index)
        pd.testing.assert_frame_equal(same(levels), levels)
        large = summary(pd.concat([table] * 2000))
        print(len(large), large.text[:3].tolist(), [n for n in os.listdir("/tmp") if n.startswith(".codeact-value")])
    """
    assert await out(executor, code) == "6000 ['a', None, 'ü'] []\n"
    types = {name: str(dtype) for name, dtype in seen[-2].dtypes.items()}
    assert types == {
        "text": "object",
        "share": "float64",
        "flag": "bool",
        "day": "datetime64[ns]",
        "whole": "Int64",
        "kind": "object",
        "when": "datetime64[ns, Europe/Paris]",
    }
    assert seen[-2].index.tolist() == [1, 2, 3]


@pytest.mark.asyncio(loop_scope="module")
async def test_images_arrive_as_images_on_both_sides(executor: SandboxCodeExecutor) -> None:
    result = await run(executor, "from PIL import Image\nturn(Image.new('RGB', (30, 20), 'red')).size")
    assert (result.value_repr, seen[-1].size, seen[-1].getpixel((0, 0))) == ("(20, 30)", (30, 20), (255, 0, 0))
    assert [call.images[0].size for call in result.tool_calls] == [(20, 30)]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_is_copied_to_the_host_for_the_call(executor: SandboxCodeExecutor) -> None:
    code = """
        import os, pathlib
        os.makedirs("sub", exist_ok=True)
        pathlib.Path("sub/notes.txt").write_text("line\\n" * 300_000)
        print(count_lines(pathlib.Path("sub/notes.txt")), count_lines("/workspace/sub/notes.txt"))
    """
    assert await out(executor, code) == "300000 300000\n"
    assert (seen[-1].name, seen[-1].exists(), seen[-1] != seen[-2]) == ("notes.txt", False, True)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_returned_file_is_in_the_sandbox_at_once(executor: SandboxCodeExecutor) -> None:
    code = (
        "path = export('year.csv')\nprint(repr(path), len(path.read_text().splitlines()), len(open('year.csv').read()))"
    )
    assert await out(executor, code) == "PosixPath('/workspace/year.csv') 200000 800000\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_what_can_not_be_exchanged_is_an_error_that_says_why(executor: SandboxCodeExecutor) -> None:
    for call, error in [
        (
            "scale(np.array([object()]))",
            "TypeError: scale(): the argument 'values' can't be sent to the host: an array of dtype",
        ),
        ("scale('text')", "TypeError: values: must be a numpy.ndarray, not a str"),
        ("scale()", "TypeError: scale(): missing a required argument: 'values'"),
        (
            "summary(pd.DataFrame({'p': pd.period_range('2026', periods=2)}))",
            "column 'p' has the dtype period[D], which can't be sent",
        ),
        ("summary(pd.DataFrame({'o': [object()]}))", "column 'o' holds values that can't be sent (a object)"),
        (
            "turn(5)",
            "TypeError: turn(): the argument 'image' can't be sent to the host: it must be an image of Pillow, not a int",
        ),
        (
            "count_lines('none.txt')",
            "FileNotFoundError: count_lines(): the argument 'file' can't be sent to the host: there is no file",
        ),
        ("count_lines('/proc/self/maps')", "files of /dev, /proc and /sys can't be passed to host tools"),
        (
            "count_lines('/tmp/large')",
            "TypeError: file: [Errno 27] it is too large: at most 8388608 bytes can be passed now: '/tmp/large'",
        ),
        (
            "big(4_000_000)",
            "it is too large: the running calls of a sandbox may hold 8,388,608 bytes of files and values",
        ),
        (
            "export('huge.bin')",
            "it is too large: the running calls of a sandbox may hold 8,388,608 bytes of files and values",
        ),
        ("export('folder')", "TypeError: the tool returned the path 'folder', which is not a file"),
        ("export('gone')", "FileNotFoundError"),
    ]:
        with case(call, error):
            prepare = "import numpy as np, pandas as pd\nopen('/tmp/large', 'wb').truncate(9_000_000)\n"
            result = await run(executor, f"{prepare}{call}")
            assert result.outcome == "error"
            assert error in result.output
            assert await out(executor, "print(count_lines('/etc/passwd') > 0)") == "True\n"
