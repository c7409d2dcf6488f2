"""`codeact demo`: everything that it prints is true."""

import hashlib
import re

import pytest

from autogen_codeact.cli.demo import load_recording
from tests.cli.support import codeact, on_terminal


@pytest.fixture(scope="module")
def demo(docker_engine, tmp_path_factory):
    """Return what the demo printed, and the folder where it ran."""
    folder = tmp_path_factory.mktemp("demo")
    return codeact("demo", cwd=folder), folder


def titles(shown):
    return [line.strip("= ") for line in shown.splitlines() if line.startswith("== ")]


STEPS = [
    "Task",
    "The model writes code (attempt 1)",
    "Attempt 1 in the sandbox",
    "The model's decision",
    "The model writes code (attempt 2)",
    "Attempt 2 in the sandbox",
    "The model's answer",
]


def test_demo_fails_repairs_answers_and_saves_a_plot(demo):
    done, folder = demo
    assert (done.status, done.err) == (0, "")
    assert titles(done.out) == STEPS
    plot = folder / "codeact-demo" / "revenue.svg"
    svg = plot.read_text()
    assert svg.startswith("<svg")
    assert svg.count("<rect") == 4
    assert re.search(r"^Plot +codeact-demo/revenue\.svg \(\d+ bytes\)$", done.out, re.MULTILINE)
    assert sorted(path.name for path in folder.rglob("*")) == ["codeact-demo", "demo.html", "revenue.svg"]
    assert re.search(r"^Page +codeact-demo/demo\.html: the whole run in one file \(\d+ kB\); ", done.out, re.MULTILINE)
    page = (folder / "codeact-demo" / "demo.html").read_text()
    assert "Cake brought in the most money" in page
    assert f'id="file-{hashlib.sha256(plot.read_bytes()).hexdigest()}"' in page


def test_demo_prints_what_is_recorded_what_is_real_and_the_sandbox(demo):
    shown = demo[0].out
    assert "Model    recorded: its answers are read from a file" in shown
    assert "Code     real: every result below comes from running the code now" in shown
    assert "Sandbox  a Docker container, started in " in shown
    assert re.search(r"^Time +\S+ m?s in total; the sandbox has been removed$", shown, re.MULTILINE)


def test_failure_is_real_and_the_answer_matches_the_output(demo):
    shown = demo[0].out
    assert re.search(r"KeyError: 'revenue'\nfailed, KeyError, exit code 1, \S+ m?s\n\n", shown)
    assert_answer_fits_output(shown)


def assert_answer_fits_output(shown):
    output = re.search(r"== Attempt 2 in the sandbox ==\n(.*?)\n(?:File: [^\n]*\n)*ok, ", shown, re.DOTALL)[1]
    found = dict(line.split() for line in output.splitlines())
    answer = shown.split("== The model's answer ==\n")[1]
    assert re.findall(r"[\d,]+\.\d\d\b", answer.split("The file has")[0]) == list(found.values())
    assert answer.startswith("**Cake brought in the most money: 1,636.00.**")
    rows = [line.split(",") for line in load_recording()["files"]["sales.csv"][1:]]
    for product in ("cake", "coffee", "tea"):
        real = sum(int(units) * float(price) for _, name, units, price in rows if name == product)
        assert found[product] == f"{real:,.2f}"


def test_terminal_output_has_titles_that_fit_the_width(bubblewrap, tmp_path):
    shown = on_terminal("demo", "--sandbox", "bubblewrap", "--out", "plot", cwd=tmp_path)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    titles = [line for line in bare.splitlines() if line.startswith("── ")]
    assert [line.strip("─ ") for line in titles] == STEPS
    assert {len(line) for line in titles} == {100}


def test_missing_engine_is_status_2_and_leaves_nothing(tmp_path):
    done = codeact("demo", "--sandbox", "docker", cwd=tmp_path, env={"DOCKER_HOST": "unix:///nowhere/docker.sock"})
    assert done.status == 2
    assert done.err.startswith("codeact: No Docker engine at unix:///nowhere/docker.sock: there is no such socket. ")
    assert list(tmp_path.iterdir()) == []


def test_out_path_that_is_not_a_folder_is_status_2(tmp_path):
    (tmp_path / "file").write_text("mine")
    done = codeact("demo", "--out", tmp_path / "file")
    assert (done.status, done.out) == (2, "")
    assert done.err == f"codeact: {tmp_path / 'file'} is not a folder. Choose another folder for the plot with --out.\n"


def test_out_folder_that_can_not_be_created_is_status_2(bubblewrap, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = codeact("demo", "--sandbox", "bubblewrap", "--out", tmp_path / "file" / "below")
    assert done.status == 2
    assert "The plot and the page can't be saved in" in done.err
