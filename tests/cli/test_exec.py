"""`codeact exec`: blocks of a markdown file, without a model."""

import json
import subprocess

import pytest

from tests.cli.support import COMMAND, code, codeact, containers_of, environment, in_bubblewrap, start

pytestmark = pytest.mark.usefixtures("docker_engine", "bubblewrap")

KEPT = "codeact: files are kept in codeact-files; --work-dir FOLDER chooses another folder"
PAGE = """\
# A page

```python
x = 6 * 7
print("hello", x)
```

```
no language
```

```json
{"a": 1}
```

```output
42
```

~~~sh
echo from sh
echo kept > note.txt
~~~
"""
FAILING = """\
Fine:
```python
print(1)
```
Bad:
```python
def f():
    return 1 / 0
f()
```
Never:
```sh
echo never
```
"""


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def test_blocks_of_known_languages_run_and_others_are_reported_as_skipped(page):
    done = in_bubblewrap("exec", page, cwd=page.parent)
    assert done.status == 0
    assert done.err.splitlines() == [
        f"codeact: {page}:9: skipped, a block without a language",
        f"codeact: {page}:13: skipped, json is not a language that the sandbox runs",
        f"codeact: {page}:17: skipped, a block of output (output)",
        KEPT,
    ]
    lines = done.out.splitlines()
    assert lines[:2] == ["[1/2] python, line 4", "hello 42"]
    assert lines[2].startswith("ok, ")
    assert lines[4:7] == [
        "[2/2] sh, line 21",
        "from sh",
        "File: note.txt (5 bytes)",
    ]
    assert "\x1b" not in done.out


def test_json_has_one_object_per_block(page):
    done = codeact("exec", page, "--json", cwd=page.parent)
    assert done.status == 0
    first, second = done.objects
    assert first.pop("duration_s") > 0
    assert (first.pop("cpu_s") >= 0, first.pop("peak_memory") > 1_000_000) == (True, True)
    assert first == {
        "index": 1,
        "language": "python",
        "line": 4,
        "exit_code": 0,
        "outcome": "ok",
        "output": "hello 42\n",
        "value_repr": None,
        "error": None,
        "truncated": 0,
        "state": "kept",
        "artifacts": [],
        "displays": [],
        "notes": [],
    }
    assert (second["index"], second["language"], second["line"], second["output"]) == (2, "sh", 21, "from sh\n")
    assert second["artifacts"] == [
        {
            "name": "note.txt",
            "size": 5,
            "media_type": "text/plain",
            "path": str(page.parent / "codeact-files/note.txt"),
            "note": None,
        }
    ]


def test_first_failing_block_ends_the_command_with_its_exit_status():
    blocks = "".join(code(f"exit {status}", language="sh") + "\n" for status in (0, 7, 9))
    done = in_bubblewrap("exec", "-", "--json", stdin=blocks)
    assert done.status == 7
    assert [entry["exit_code"] for entry in done.objects] == [0, 7]
    assert done.err == "codeact: stopped at the first failing block; 1 block after it did not run\n"


def test_failure_names_the_line_in_the_file(tmp_path):
    file = tmp_path / "failing.md"
    file.write_text(FAILING)
    done = in_bubblewrap("exec", file)
    assert done.status == 1
    assert "ZeroDivisionError: division by zero" in done.out
    assert f" at {file}:8\n" in done.out
    assert "never" not in done.out
    failed = in_bubblewrap("exec", file, "--json").objects[-1]
    assert failed["error"] == {"type": "ZeroDivisionError", "message": "division by zero", "line": 2}
    assert (failed["outcome"], failed["line"]) == ("error", 7)


def test_blocks_share_variables_unless_each_is_a_process():
    blocks = code("x = 20") + "\n" + code("x + 1") + "\n"
    done = in_bubblewrap("exec", "-", "--json", stdin=blocks)
    assert done.status == 0
    assert [entry["value_repr"] for entry in done.objects] == [None, "21"]
    done = in_bubblewrap("exec", "-", "--option", "mode=process", "--json", stdin=blocks)
    assert done.status == 1
    assert done.objects[-1]["error"]["type"] == "NameError"


def test_files_are_kept_in_a_new_folder(tmp_path):
    text = code("import os; os.mkdir('out'); open('out/plot.png', 'wb').write(b'x' * 2000)")
    for folder in ("codeact-files", "codeact-files-2"):
        done = in_bubblewrap("exec", "-", stdin=text, cwd=tmp_path)
        assert "File: out/plot.png (2 kB)\n" in done.out
        assert done.err == f"codeact: files are kept in {folder}; --work-dir FOLDER chooses another folder\n"
        assert (tmp_path / folder / "out/plot.png").stat().st_size == 2000
    assert len(list(tmp_path.iterdir())) == 2


def test_python_script_runs(tmp_path):
    file = tmp_path / "report.py"
    file.write_text("import sys\n\n\ndef f():\n    return 1 / 0\n\nprint(sys.version_info[0])\nf()\n")
    done = in_bubblewrap("exec", file, cwd=tmp_path)
    assert (done.status, done.out.splitlines()[:2]) == (1, ["[1/1] python, line 1", "3"])
    assert f" at {file}:5\n" in done.out
    assert f'File "{file}", line 8, in <module>' in done.out
    assert "tmp_code_" not in done.out


def test_shell_script_runs(tmp_path):
    (tmp_path / "a.sh").write_text("echo one\nexit 3\n")
    done = in_bubblewrap("exec", tmp_path / "a.sh", "--json", cwd=tmp_path)
    assert (done.status, [entry["output"] for entry in done.objects]) == (3, ["one\n"])


def notebook(*cells, **metadata):
    made = [{"cell_type": kind, "source": source, "metadata": {}} for kind, source in cells]
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def test_notebook_runs_its_code_cells_in_one_session(tmp_path):
    file = tmp_path / "book.ipynb"
    cells = [
        ("markdown", "# Title"),
        ("code", ["x = 20\n", "y = 1"]),
        ("code", ""),
        ("code", "x + y"),
        ("code", "\nx / 0"),
        ("code", "7"),
    ]
    file.write_text(notebook(*cells, kernelspec={"language": "python"}))
    done = in_bubblewrap("exec", file, cwd=tmp_path)
    assert done.status == 1
    assert [line for line in done.out.splitlines() if line.startswith("[")] == [
        *("[1/4] python, cell 2", "[2/4] python, cell 4", "[3/4] python, cell 5"),
    ]
    assert f" at {file}, cell 5, line 2\n" in done.out
    assert done.err == "codeact: stopped at the first failing block; 1 block after it did not run\n"
    done = in_bubblewrap("exec", file, "--keep-going", "--json", cwd=tmp_path)
    assert done.status == 1
    assert [(entry["cell"], entry["value_repr"], entry["exit_code"]) for entry in done.objects] == [
        *((2, None, 0), (4, "21", 0), (5, None, 1), (6, "7", 0)),
    ]


def test_tags_of_cells_are_kept(tmp_path):
    tagged = [("1/0", "raises-exception"), ("print('skipped')", "skip-execution"), ("print('went', 'on')", "other")]
    cells = [{"cell_type": "code", "source": source, "metadata": {"tags": [tag]}} for source, tag in tagged]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    done = in_bubblewrap("exec", "a.ipynb", cwd=tmp_path)
    assert (done.status, "went on" in done.out, "skipped" in done.out) == (0, True, False)


@pytest.mark.parametrize(
    ("data", "status", "out", "err"),
    [
        (b"# coding: latin-1\nprint('caf\xe9', len('\xe9'))", 0, "caf\xe9 1", ""),
        (b"\xef\xbb\xbfprint('caf\xc3\xa9')", 0, "caf\xe9", ""),
        (b"print('caf\xe9')", 2, "", "codeact: a.py is not text in utf-8: "),
        (b"# coding: nothing\n", 2, "", "codeact: a.py is not text in utf-8: "),
    ],
    ids=["latin-1", "mark", "invalid", "unknown"],
)
def test_encoding_of_a_script(tmp_path, data, status, out, err):
    (tmp_path / "a.py").write_bytes(data)
    done = in_bubblewrap("exec", "a.py", cwd=tmp_path)
    assert (done.status, out in done.out, done.err.startswith(err)) == (status, True, True)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.py", " \n", "no code blocks to run.\n"),
        ("a.ipynb", "{}", "is not a notebook of version 4 (nbformat 4): open it in Jupyter and save it"),
        ("a.ipynb", '{"cells": [\n', ":2 is not JSON: Expecting value at column 1"),
        ("a.ipynb", notebook(("markdown", "only")), "no code blocks to run.\n"),
        ("sales.csv", "a,b\n", "no code blocks to run. Blocks need a fence with a language, such as ```python. "),
        ("a.md", "```\nx\n```\n", "no code blocks to run"),
        ("a.md", "```sh\necho ran > a\n\n```python\nprint(1)\n```\n", "line 2 is never closed, so nothing was run"),
    ],
    ids=["script", "no notebook", "no JSON", "no cell", "other kind", "no language", "open block"],
)
def test_file_without_code_to_run_is_status_2(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    done = in_bubblewrap("exec", name, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_last_block_that_is_not_closed_ends_with_the_file():
    done = in_bubblewrap("exec", "-", stdin=f"{code('x = 6')}\nThen:\n```python\nprint(x * 7)\n")
    assert (done.status, done.out.count("42")) == (0, 1)
    assert "codeact: standard input:6: the block is never closed, so it ends with the file\n" in done.err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_that_can_not_be_written_is_one_line(options, page):
    command = [COMMAND, "exec", page, "--sandbox", "bubblewrap", *options]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=page.parent, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.endswith("codeact: the output can't be written: No space left on device\n")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--work-dir", __file__], "The --work-dir"),
        (["--work-dir", "/proc"], "/proc can't be used: no file can be created there. Use another folder."),
        (["--option", "cpus=abc"], "codeact: --option cpus: must be a number"),
    ],
)
def test_invalid_options_are_status_2(options, complaint):
    done = codeact("exec", "-", *options, stdin=code("print(1)"))
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_timeout_is_a_result_with_status_124():
    done = codeact(
        "exec", "-", "--timeout", "0.5", "--json", stdin=code("import time", "print('on')", "time.sleep(60)")
    )
    assert done.status == 124
    (entry,) = done.objects
    assert (entry["outcome"], entry["exit_code"]) == ("timeout", 124)
    done = in_bubblewrap("exec", "-", "--timeout", "0.5", stdin=code("import time", "time.sleep(60)"))
    assert (
        "\nHint: a block may take 0.5 s. --timeout SECONDS sets another limit.\ntimed out and was stopped, " in done.out
    )


def test_work_dir_is_copied_into_the_sandbox_and_back(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("given")
    text = code("open('out.txt', 'w').write(open('in.txt').read().upper())")
    done = codeact("exec", "-", "--work-dir", folder, "--json", stdin=text)
    assert done.status == 0
    assert done.objects[0]["artifacts"][0]["path"] == str(folder / "out.txt")
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out.txt"]
    assert (folder / "out.txt").read_text() == "GIVEN"
    assert done.err == ""
    done = in_bubblewrap("exec", "-", "--work-dir", tmp_path / "new", stdin=code("print(1)"))
    assert (done.status, done.err) == (
        0,
        f"codeact: {tmp_path / 'new'} does not exist: it is created, and begins empty\n",
    )


def test_unreadable_file_is_status_2(tmp_path):
    for file, why in ((tmp_path / "none.md", "No such file or directory"), (tmp_path, "Is a directory")):
        done = in_bubblewrap("exec", file)
        assert (done.status, done.out, done.err) == (2, "", f"codeact: {file} can't be read: {why}\n")


def test_closed_standard_output_gives_no_traceback():
    process = start("exec", "-", "--json")
    process.stdout.close()
    process.stdin.write(code("print(1)"))
    process.stdin.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=20) == 1
    assert err == ""
    assert containers_of(process.pid) == []


def test_characters_outside_the_encoding_become_question_marks():
    done = in_bubblewrap("exec", "-", stdin=code("print('na\\xefve')"), env={"PYTHONIOENCODING": "ascii"})
    assert done.status == 0
    assert "na?ve" in done.out
