"""Notebooks: `%%sandbox` cells in a real kernel, and the sample notebook."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from codeact_sandbox.backends.docker.engine import connect
from tests.cases import case
from tests.integrations.kernel import Kernel, Ran, started_kernel

pytestmark = pytest.mark.usefixtures("docker_engine")
ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "notebook.ipynb"


def containers_of(pid: int) -> list[str]:
    with closing(connect()) as client:
        found = client.containers(all=True, filters={"label": "org.autogen-codeact.kind=sandbox"})
    return [each["Id"] for each in found if each["Labels"]["org.autogen-codeact.owner"].endswith(f":{pid}")]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, docker_engine: str) -> Iterator[Kernel]:
    """A kernel in which the extension is loaded."""
    with started_kernel(tmp_path_factory.mktemp("kernel")) as started:
        pid = started.manager.provisioner.pid
        assert started.run("%load_ext autogen_codeact").status == "ok"
        yield started
        started.run("%%sandbox\n1")
        assert containers_of(pid)
    until = time.monotonic() + 30
    while containers_of(pid):
        assert time.monotonic() < until, "the sandbox is still there after the kernel's end"
        time.sleep(0.1)


@pytest.mark.more
def test_sample_notebook_shows_table_and_figures(tmp_path: Path) -> None:
    notebook = nbformat.read(SAMPLE, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=150, resources={"metadata": {"path": str(tmp_path)}}).execute()
    table, plot, best, live, result, stop = [
        cell.outputs
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source != "%load_ext autogen_codeact"
    ]
    assert [each.output_type for each in table] == ["stream", "display_data"]
    assert table[0].text == "6 months\n"
    assert "&lt;th&gt;kettles&lt;/th&gt;" in table[1].data["text/html"]
    assert [list(each.data) for each in plot] == [["text/plain", "image/png"]]
    assert plot[0].data["image/png"].startswith("iVBORw0KGgo")
    assert [each.text for each in best] == ["'kettles'\n"]
    said = "".join(each.text for each in live)
    assert "Can I live from betting on red?" in said
    assert "mean gain of a game: -0.027" in said
    assert [each.data["text/plain"].startswith("'A bet on red loses") for each in result] == [True]
    assert stop == []


def test_output_figures_and_tables_come_in_their_order(kernel: Kernel) -> None:
    ran = kernel.run("""%%sandbox
import pandas
from IPython.display import HTML, display
print("before \\x1b[31mred\\x1b[0m \\x1b[2J\\u202e")
display(HTML("<script>parent.stolen = 1</script><b>bold</b>"))
print("between")
display(pandas.DataFrame({"a": [1]}))
6 * 7
""")
    assert (ran.status, ran.warned, ran.error) == ("ok", "", None)
    assert ran.text == "before \x1b[31mred\x1b[0m \\x1b[2J\\u202e\nbetween\n42\n"
    assert [sorted(bundle) for bundle in ran.shown] == [["text/html", "text/plain"]] * 2
    assert "<script" not in ran.page
    assert ran.page.count('<iframe sandbox=""') == 2


def test_an_error_fails_the_cell_and_keeps_the_variables(kernel: Kernel) -> None:
    ran = kernel.run("%%sandbox --result failed\nkept = 5\ndef divide(): return 1 / 0\nprint('printed')\ndivide()")
    assert ran.status == "error"
    assert ran.text.startswith('printed\nTraceback (most recent call last):\n  File "<block ')
    assert ran.error[:2] == ("ZeroDivisionError", "division by zero")
    assert ran.error[2] == "\x1b[31mZeroDivisionError: division by zero\x1b[0m"
    assert "notebook_magics" not in ran.error[2]
    assert kernel.run("failed.outcome").shown == [{"text/plain": "'error'"}]
    assert kernel.run("%%sandbox\nkept").text == "5\n"


@pytest.mark.parametrize(
    ("cell", "name", "message"),
    [
        (
            "%%sandbox --timeout 0.3\nwhile True: pass",
            "Timeout",
            " s; --timeout SECONDS (timeout=) sets another\nThe session",
        ),
        ("%%sandbox -l sh\nexit 3", "ExitStatus", "exit code 3"),
        ("%%sandbox\nx =", "SyntaxError", "invalid syntax"),
        ("%%sandbox\nraise type('\\x1b[2J<b>', (Exception,), {})('\\x1b[2J')", "SandboxCellError", "\\x1b[2J"),
        ("%%sandbox -l cobol\nSTOP RUN", "UnknownLanguage", "cobol"),
    ],
)
def test_each_failure_is_the_error_of_the_cell(kernel: Kernel, cell: str, name: str, message: str) -> None:
    ran = kernel.run(cell)
    assert ran.status == "error"
    assert ran.error[0] == name
    assert message in ran.error[1]
    assert "\x1b[2J" not in "".join(ran.error)


def test_wrong_use_says_what_is_wrong(kernel: Kernel) -> None:
    for cell, message in [
        ("%%sandbox --nope\n1", "unrecognized arguments: --nope"),
        ("%%sandbox -o nope=1\n1", "did you mean 'nofile'?"),
        ("%%sandbox -o allow_pip\n1", "'allow_pip' is not NAME=VALUE with the name of an option"),
        ("%%sandbox --timeout 0\n1", "Timeout must be greater than"),
        ("%%sandbox -o memory=2g\n1", "has been started with other options: run %sandbox_stop first"),
        ("%%sandbox --result 1x\n1", "'1x' is not the name of a variable"),
    ]:
        with case(cell, message):
            kernel.run("%%sandbox\n1")
            ran = kernel.run(cell)
            assert ran.status == "error"
            assert ran.warned.startswith("UsageError: ")
            assert message in ran.warned
    kernel.run("%sandbox_stop")
    for cell, message in [
        ("%%sandbox -o memory=3\n1", "memory='3' is 3 bytes"),
        ("%%sandbox --backend bubblewrap -o image=x\n1", "image= is not for sandbox='bubblewrap'"),
    ]:
        with case(cell, message):
            assert message in kernel.run(cell).warned


def test_an_interrupt_stops_the_cell_and_keeps_the_session(kernel: Kernel) -> None:
    kernel.run("%%sandbox\nkept = 7")
    interrupted = []

    def interrupt(ran: Ran) -> None:
        if "started" in ran.text and not interrupted:
            interrupted.append(True)
            kernel.manager.interrupt_kernel()

    code = "kept = 8\nprint('started', flush=True)\nfor n in range(3): print(n, end=' ')\nimport time\ntime.sleep(100)"
    ran = kernel.run(f"%%sandbox\n{code}", interrupt)
    assert ran.text == "started\n0 1 2 "
    assert ran.status == "error"
    assert ran.error[:2] == (
        "KeyboardInterrupt",
        "the cell was stopped\nThe session's variables are as they were before this cell.",
    )
    assert "notebook_magics" not in ran.error[2]
    assert kernel.run("%%sandbox\nkept").text == "7\n"


PLAIN = r"""
shell = get_ipython()
shell.run_line_magic("load_ext", "autogen_codeact")
cell = "print('printed\x1b[2J')\nfrom IPython.display import HTML, display\ndisplay(HTML('x'))"
shell.run_cell_magic("sandbox", "--backend bubblewrap", cell)
shell.run_cell("%%sandbox\n1 / 0")
"""


def run_ipython(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in IPython without a notebook."""
    (folder / "program.ipy").write_text(program)
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "program.ipy"]
    environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython")}
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=nothing,
        stdout=pipe,
        stderr=pipe,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.usefixtures("bubblewrap")
def test_plain_ipython_prints_text_and_ends_with_its_sandbox(tmp_path: Path) -> None:
    done = run_ipython(tmp_path, PLAIN)
    assert (done.returncode, done.stdout.count("\x1b[2J")) == (0, 0), done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "printed\\x1b[2J"
    assert "<IPython.core.display.HTML object: display-1.html>" in lines
    assert any("ZeroDivisionError: division by zero" in line for line in [*lines, *done.stderr.splitlines()])
    assert "Traceback" not in done.stderr


SANDBOX_ALONE = """
import sys
shell = get_ipython()
shell.run_line_magic("load_ext", "codeact_sandbox")
shell.run_cell_magic("sandbox", "--backend bubblewrap", "6 * 7")
print("autogen_codeact" in sys.modules, "autogen_core" in sys.modules)
"""


@pytest.mark.usefixtures("bubblewrap")
def test_the_sandbox_alone_has_the_magics_too(tmp_path: Path) -> None:
    done = run_ipython(tmp_path, SANDBOX_ALONE)
    assert (done.returncode, done.stdout) == (0, "42\nFalse False\n"), done.stderr
