"""What the libraries of the default image do in a sandbox: Parquet, styled tables, interactive figures, databases, JavaScript."""

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.sandbox.images import build_from

pytestmark = [pytest.mark.more, pytest.mark.usefixtures("sandbox_image")]

TASKS = "len(os.listdir('/proc/self/task'))"
TABLE = (
    "import os, numpy as np, pandas as pd, plotly.express as px, altair as alt, sqlalchemy as sa\n"
    "table = pd.DataFrame({'a': np.arange(200_000), 'b': 'text'})\n"
    "table.to_parquet('t.parquet', row_group_size=10_000)\n"
)
SQL = "with sa.create_engine('sqlite://').connect() as database:\n    print(database.execute(sa.text('select 1 + 1')).scalar())"
PLOTLY = "px.line(x=[1, 2], y=[3, 4])"
ALTAIR = "alt.Chart(table[:2]).mark_point().encode(x='a', y='a')"
NO_IMAGE = (
    "<Interactive figure without an image: to look at it, draw it with matplotlib; to keep it, save it as HTML (`%s`)"
)


@pytest.fixture(scope="module")
def image_without_node(sandbox_image: str) -> Iterator[str]:
    name = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
    with closing(connect()) as client:
        build_from(client, f"FROM {DEFAULT_IMAGE}\nRUN rm /usr/bin/node\n", name)
    yield name
    with closing(connect()) as client:
        client.remove_image(name, force=True)


async def test_a_session_that_has_read_parquet_is_restored_after_each_timeout_and_reads_again() -> None:
    async with AsyncSandbox("docker", timeout=50) as box:
        assert (await box.run("import os, numpy, sqlalchemy, pandas, plotly.express, altair\n" + TASKS)).output == "1\n"
        await box.run(TABLE)
        for number in range(2):
            read = await box.run(f"kept = pd.read_parquet('t.parquet'), {number}; kept[0].equals(table)")
            assert read.output == "True\n"
            late = await box.run("kept = None\nwhile True:\n    pd.read_parquet('t.parquet')", timeout=2)
            assert (late.outcome, late.state) == ("timeout", "restored")
            after = await box.run("print(kept[1], kept[0].equals(table), pd.read_parquet('t.parquet').equals(table))")
            assert after.output == f"{number} True True\n"


async def test_figures_without_an_image_say_so_and_keep_what_notebooks_show() -> None:
    async with AsyncSandbox("docker", timeout=50) as box:
        await box.run(TABLE)
        for code, kind, name, method in (
            (PLOTLY, "application/vnd.plotly.v1+json", "figure-1.plotly.json", "write_html"),
            (f"{PLOTLY}.show()", "application/vnd.plotly.v1+json", "figure-2.plotly.json", "write_html"),
            (ALTAIR, "text/html", None, "save"),
            (f"display({ALTAIR})", "text/html", None, "save"),
        ):
            result = await box.run(code)
            (display,) = result.displays
            text = NO_IMAGE % method
            assert (display.text, [*display.data]) == (f"{text}>", ["text/plain", kind]), code
            assert result.output == (f"{text}: {name}>\n" if name else f"{text}>\n"), code
        image = (
            "display({'text/html': '<script>vegaEmbed()</script>', 'image/png': b'', 'text/plain': 'mine'}, raw=True)"
        )
        assert "mine" in (await box.run(image)).output


async def test_styled_tables_and_databases_work() -> None:
    async with AsyncSandbox("docker", timeout=50) as box:
        await box.run(TABLE)
        (display,) = (await box.run("table[:2].style.highlight_max(color='red')")).displays
        assert "background-color: red" in display.data["text/html"]
        assert (await box.run(SQL)).output == "2\n"


async def test_javascript_runs_and_without_node_it_fails(image_without_node: str) -> None:
    async with AsyncSandbox("docker") as box:
        for label in ("javascript", "js"):
            assert (await box.run("console.log([1, 2].map(n => n * 21)[1])", label)).output == "42\n", label
    async with AsyncSandbox("docker", image=image_without_node) as box:
        result = await box.run("console.log(1)", "javascript")
        assert (result.exit_code, result.output) == (127, "node: not found\n")
