"""`codeact demo`: everything that it prints is true."""

import csv
import re

import pytest

from tests.cli.support import codeact


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
    assert done.status == 0
    assert titles(done.out) == STEPS
    made = folder / "codeact-demo"
    assert (made / "revenue.svg").read_text().count("<rect") == 4
    assert sorted(path.name for path in made.iterdir()) == ["demo.html", "report.py", "revenue.svg", "sales.csv"]
    assert "Cake brought in the most money" in (made / "demo.html").read_text()
    assert "Model    recorded: its answers are read from a file" in done.out


def test_failure_is_real_and_the_answer_matches_the_output(demo):
    done, folder = demo
    shown = done.out
    assert re.search(r"KeyError: 'revenue'\nfailed, KeyError, exit code 1, \S+ m?s\n\n", shown)
    output = re.search(r"== Attempt 2 in the sandbox ==\n(.*?)\n(?:File: [^\n]*\n)*ok, ", shown, re.DOTALL)[1]
    found = dict(line.split() for line in output.splitlines())
    answer = shown.split("== The model's answer ==\n")[1]
    assert re.findall(r"[\d,]+\.\d\d\b", answer.split("The file has")[0]) == list(found.values())
    assert answer.startswith("**Cake brought in the most money: 1,636.00.**")
    rows = list(csv.DictReader((folder / "codeact-demo" / "sales.csv").read_text().splitlines()))
    for product in ("cake", "coffee", "tea"):
        real = sum(int(row["units"]) * float(row["price"]) for row in rows if row["product"] == product)
        assert found[product] == f"{real:,.2f}"


def test_out_path_that_is_not_a_folder_is_status_2(tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        done = codeact("demo", "--out", out)
        assert (done.status, done.err) == (
            2,
            f"codeact: {out} can't be used ({'File exists' if out.name == 'file' else 'Not a directory'}). "
            "Choose another folder with --out.\n",
        )
