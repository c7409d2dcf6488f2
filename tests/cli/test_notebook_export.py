"""`codeact export --ipynb`: a run as a notebook that is valid for Jupyter."""

import nbformat
import pytest
from nbclient import NotebookClient

from autogen_codeact.cli.terminal import format_size
from tests.cli.support import code, codeact, replay


@pytest.mark.usefixtures("docker_engine")
def test_a_run_with_displays_becomes_a_notebook(tmp_path):
    shows = ["from IPython.display import HTML, display", "import pandas", "display(HTML('<b>hi</b>'))"]
    shows += ["print('\\x1b[31mred\\x1b[0m\\x1b[2J')", "pandas.DataFrame({'a': [1]})"]
    answers = [
        "I look.\n" + code(*shows),
        code("import os") + "\n" + code("1 / 0"),
        code("[1, 2]"),
        code("ls", language="bash"),
        code("final_answer('done')"),
    ]
    model = replay(tmp_path, *answers)
    folder, file = tmp_path / "run", tmp_path / "run.ipynb"
    assert codeact("run", "Show it.", "--act", "--model", model, "--save", folder).status == 0
    done = codeact("export", folder, "--ipynb", file)
    assert (done.status, done.out, done.err) == (0, "", f"codeact: wrote {file} ({format_size(file.stat().st_size)})\n")
    notebook = nbformat.read(file, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    first, imports, failed, value, shell, last = [cell for cell in notebook.cells if cell.get("execution_count")]
    assert (imports.source, imports.outputs) == ("import os", [])
    assert [each.output_type for each in first.outputs] == ["stream", "display_data", "execute_result"]
    assert first.outputs[0].text == "<IPython.core.display.HTML object: display-1.html>\nred\\x1b[2J\n"
    assert first.outputs[1].data["text/html"] == "<b>hi</b>"
    assert first.outputs[2].data["text/plain"] == "   a\n0  1"
    assert "<table" in first.outputs[2].data["text/html"]
    assert [each.data for each in value.outputs] == [{"text/plain": "[1, 2]"}]
    assert (shell.source, shell.outputs[0].text) == ("%%bash\nls", "display-1.html\n")
    assert [(each.ename, each.evalue) for each in failed.outputs] == [("ZeroDivisionError", "division by zero")]
    assert last.source == "final_answer('done')"
    words = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert words[1:] == ["**user**\n\nShow it.", "**coder**\n\nI look.", "**coder**\n\ndone"]
    notebook.cells.insert(0, nbformat.v4.new_code_cell("final_answer = print"))
    NotebookClient(notebook, timeout=45, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [[each.output_type for each in cell.outputs] for cell in (first, imports, failed, value, shell, last)] == [
        ["display_data", "stream", "execute_result"],
        [],
        ["error"],
        ["execute_result"],
        ["stream"],
        ["stream"],
    ]
    assert "<table" in first.outputs[2].data["text/html"]
    assert (failed.outputs[0].ename, value.outputs[0].data["text/plain"]) == ("ZeroDivisionError", "[1, 2]")
    assert last.outputs[0].text == "done\n"
