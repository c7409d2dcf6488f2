"""What code shows: displays in the result, their files, and the lines in the output that stand for them."""

import struct
from pathlib import Path

import pytest
import pytest_asyncio
from autogen_core import CancellationToken

from autogen_codeact.executors import DockerCommandLineCodeExecutor, OutputChunk
from codeact_sandbox.types.displays import interleave
from tests.sandbox.conftest import MakeExecutor
from tests.sandbox.sandboxes import block, out, run

on_module_loop = pytest.mark.asyncio(loop_scope="module")
pytestmark = [pytest.mark.usefixtures("docker_engine"), on_module_loop]

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(sandbox_image, tmp_path_factory):
    """One session in a folder of its own for all tests here; every test empties the folder."""
    folder = tmp_path_factory.mktemp("shown")
    async with DockerCommandLineCodeExecutor(mode="session", timeout=20, work_dir=folder) as started:
        await out(started, PLOT + "plt.close()")  # once, because it takes long
        await started.checkpoint()
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def session(shown: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
    if await shown.list_files():
        await out(shown, "rm -r ./*", "sh")
    for path in shown.work_dir.iterdir():
        path.unlink()
    await shown.rollback()
    return shown


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG file."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_open_figures_are_shown_by_show_and_at_the_end_of_a_block(session: DockerCommandLineCodeExecutor) -> None:
    result = await run(session, PLOT + "plt.show()\nprint('between')\nplt.plot([3, 2])\nprint('last')")
    assert result.output == "<Figure size 640x480: figure-1.png>\nbetween\nlast\n<Figure size 640x480: figure-2.png>\n"
    assert [(display.name, list(display.data)) for display in result.displays] == [
        ("figure-1.png", ["text/plain", "image/png"]),
        ("figure-2.png", ["text/plain", "image/png"]),
    ]
    first, second = (display.data["image/png"] for display in result.displays)
    # The tight box that a notebook cuts, not the 640 x 480 of the figure.
    assert 500 < size_of(first)[0] < 600
    assert first != second
    assert [display.path for display in result.displays] == [session.work_dir / f"figure-{n}.png" for n in (1, 2)]
    assert (session.work_dir / "figure-1.png").read_bytes() == first
    assert [(item.name, item.media_type) for item in result.artifacts] == [
        ("figure-1.png", "image/png"),
        ("figure-2.png", "image/png"),
    ]
    assert await out(session, "len(plt.get_fignums())") == "0\n"


async def test_a_value_with_more_than_text_is_a_display(session: DockerCommandLineCodeExecutor) -> None:
    result = await run(session, "import pandas as pd\npd.DataFrame({'a': [1]})")
    assert (result.output, result.value_repr) == ("   a\n0  1\n", "   a\n0  1")
    (display,) = result.displays
    assert (display.name, display.path, display.text) == ("display-1", None, "   a\n0  1")
    assert display.data["text/html"].startswith("<div>")
    assert names(session.work_dir) == []


async def test_display_without_ipython_knows_its_classes(session: DockerCommandLineCodeExecutor) -> None:
    code = """
        from IPython.display import HTML, JSON, Image, Markdown, display
        display(HTML("<script>alert(1)</script>"), Markdown("# a"), JSON({"a": [1]}), 5, "x")
        display({"text/plain": "raw"}, raw=True)
    """
    result = await run(session, code)
    assert result.output == (
        "<IPython.core.display.HTML object: display-1.html>\n"
        "<IPython.core.display.Markdown object: display-2.md>\n"
        "<IPython.core.display.JSON object: display-3.json>\n"
        "5\n'x'\nraw\n"
    )
    assert [display.data for display in result.displays] == [
        {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<script>alert(1)</script>"},
        {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "# a"},
        {"text/plain": "<IPython.core.display.JSON object>", "application/json": {"a": [1]}},
    ]
    assert names(session.work_dir) == ["display-1.html", "display-2.md", "display-3.json"]


async def test_objects_are_shown_by_their_own_methods(session: DockerCommandLineCodeExecutor) -> None:
    code = """
        class Rich:
            def __repr__(self): return "rich"
            def _repr_html_(self): return "<b>rich</b>", {"isolated": True}
            def _repr_latex_(self): raise ValueError("no formula")
            def _repr_svg_(self): return None
        class Bundle:
            def __repr__(self): return "bundle"
            def _repr_mimebundle_(self, include=None, exclude=None): return {"image/svg+xml": "<svg/>"}
        class Anything:
            def __repr__(self): return "anything"
            def __getattr__(self, name): return lambda *_, **__: "made up"
        display(Rich())
        display(Anything())
        Bundle()
    """
    result = await run(session, code)
    assert result.output == "_repr_latex_ raised ValueError: no formula\nrich\nanything\nbundle\n<figure-1.svg>\n"
    assert [(display.data, display.metadata) for display in result.displays] == [
        ({"text/plain": "rich", "text/html": "<b>rich</b>"}, {"text/html": {"isolated": True}}),
        ({"text/plain": "bundle", "image/svg+xml": "<svg/>"}, {}),
    ]


async def test_a_display_can_be_replaced_and_dropped(session: DockerCommandLineCodeExecutor) -> None:
    code = """
        from IPython.display import HTML, clear_output, update_display
        display(HTML("old"))
        clear_output(wait=True)
        handle = display(HTML("1"), display_id="bar")
        display(HTML("other"))
        handle.update(HTML("2"))
        update_display(HTML("3"), display_id="bar")
    """
    result = await run(session, code)
    assert [(display.name, display.data["text/html"]) for display in result.displays] == [
        ("display-2.html", "3"),
        ("display-3.html", "other"),
    ]
    assert result.notes == ("clear_output() has dropped 1 display shown before it: there are no files of them.",)
    assert names(session.work_dir) == ["display-2.html", "display-3.html"]


async def test_figures_of_a_script_are_shown(make_docker: MakeExecutor, tmp_path: Path) -> None:
    executor = await make_docker(work_dir=tmp_path, delete_tmp_files=True)
    result = await run(executor, PLOT + "plt.savefig('own.png')\nplt.show()\nplt.plot([1])\nraise SystemExit(3)")
    assert (result.exit_code, result.output) == (
        3,
        "<Figure size 640x480: figure-1.png>\n<Figure size 640x480: figure-2.png>\n",
    )
    assert [display.name for display in result.displays] == ["figure-1.png", "figure-2.png"]
    assert names(tmp_path) == ["figure-1.png", "figure-2.png", "own.png"]


SVG = """
class Drawing:
    def __repr__(self): return "<Drawing>"
    def _repr_svg_(self): return "<svg/>"
"""


async def test_a_display_is_streamed_where_it_was_shown(session: DockerCommandLineCodeExecutor) -> None:
    code = SVG + "print('before', flush=True)\ndisplay(Drawing())\nimport time; time.sleep(0.2)\nprint('after')"
    stream = session.execute_stream([block(code)], CancellationToken())
    chunks = [item async for item in stream if isinstance(item, OutputChunk)]
    seen = [each.display.name if each.display is not None else each.text for each in chunks]
    texts = [text for text in seen if text != "figure-1.svg"]
    assert "".join(texts) == "before\n<Drawing: figure-1.svg>\nafter\n"
    assert seen.count("figure-1.svg") == 1
    at = seen.index("figure-1.svg")
    assert ("".join(seen[:at]), seen[at + 1]) == ("before\n", "<Drawing: figure-1.svg>\n")


async def test_what_was_shown_before_a_timeout_is_kept(session: DockerCommandLineCodeExecutor) -> None:
    result = await session.sandbox.run(SVG + "display(Drawing())\nimport time; time.sleep(60)", timeout=3)
    assert (result.outcome, result.state) == ("timeout", "restored")
    assert [display.name for display in result.displays] == ["figure-1.svg"]
    assert names(session.work_dir) == ["figure-1.svg"]
    assert (await run(session, "display(Drawing())")).outcome == "error"  # its class is gone with the block


SHOW_BETWEEN = """
import subprocess, sys
from IPython.display import HTML, display
line = "<IPython.core.display.HTML object: display-{}.html>"
for number in range(1, 4):
    print(line.format(number))  # looks like a display
    sys.stderr.write("error\\n")
    subprocess.run(["echo", "é" * 10])
    display(HTML("<p>"))
    subprocess.run(["echo", "after"])
print("end")
"""


@pytest.mark.parametrize("mode", ["session", "process"])
async def test_a_display_stands_where_it_was_shown_whatever_else_is_printed(make_executor, mode):
    executor = await make_executor(mode=mode)
    result = await run(executor, SHOW_BETWEEN)
    pieces = interleave(result.output, result.displays)
    expected: list[str | None] = []
    for number in range(1, 4):
        text = f"<IPython.core.display.HTML object: display-{number}.html>\nerror\n{'é' * 10}\n"
        expected += [("after\n" if number > 1 else "") + text, None]
    assert [piece if isinstance(piece, str) else None for piece in pieces] == [*expected, "after\nend\n"]
    chunks = [chunk async for chunk in executor.execute_stream([block(SHOW_BETWEEN)], CancellationToken())]
    texts = ""
    for chunk in chunks:
        if isinstance(chunk, OutputChunk):
            assert chunk.display is None or chunk.display.offset == len(texts)
            texts += chunk.text
