"""`codeact run --approve-later`, and the answers of `codeact resume`."""

import json

import pytest
from jsonschema import Draft202012Validator

from tests.cli.support import code, codeact
from tests.cli.test_json_output import SCHEMA
from tests.openai_server import OpenAIServer

KEY = {"OPENAI_API_KEY": "sk-not-a-key-at-all"}


@pytest.mark.usefixtures("bubblewrap")
def test_run_waits_for_each_answer_and_goes_on(tmp_path):
    folder = tmp_path / "run"
    with OpenAIServer([code("x = 6"), code("final_answer(x * 7)"), "It may not."]) as server:
        model = ["--model", "gpt-4o", "--base-url", server.base_url, "--sandbox", "bubblewrap"]
        waits = codeact("run", "--act", "What is 6*7?", "--approve-later", *model, "--save", folder, env=KEY)
        listed = codeact("runs", tmp_path, "--json")
        shown = codeact("show", folder)
        early = codeact("resume", folder, env=KEY)
        second = codeact("resume", folder, "--approve", "--json", env=KEY)
        unclear = codeact("resume", folder, "--question", "q2", env=KEY)
        unknown = codeact("resume", folder, "--question", "q9", "--approve", env=KEY)
        done = codeact("resume", folder, "--deny", "too dear", env=KEY)
        over = codeact("resume", folder, "--deny", "too late", env=KEY)
    question = "q1: may coder run this code?\n```python\nx = 6\n```"
    said = (
        f"{folder} waits for an answer:\n{question}\n"
        f"`codeact resume {folder} --approve` or `--deny REASON` answers, and the run goes on.\n"
    )
    assert waits.status == 4
    assert waits.err.endswith(f"codeact: {said}")
    assert [json.loads(line)["outcome"] for line in listed.out.splitlines()] == ["waiting"]
    assert (shown.status, shown.err) == (0, f"codeact: {said}")
    assert (early.status, early.err) == (4, f"codeact: {said}")
    assert (second.status, second.objects[-1]) == (
        4,
        {
            "type": "waiting",
            "outcome": "waiting",
            "questions": {"q2": "q2: may coder run this code?\n```python\nfinal_answer(x * 7)\n```"},
            "run": str(folder),
        },
    )
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(second.objects[-1])
    assert (unclear.status, unclear.err) == (2, "codeact: Answer with --approve or --deny REASON.\n")
    assert (unknown.status, unknown.err) == (2, f"codeact: {folder} has no question 'q9'; it waits for q2.\n")
    assert "It may not." in done.out
    assert "the person said no: too dear" in done.out
    assert over.status == 2
    assert "is finished: there is nothing to continue" in over.err


def test_options_that_do_not_fit_are_refused(tmp_path):
    run = codeact("run", "Go", "--approve-later", "--no-save", "--model", "gpt-4o", env=KEY)
    assert (run.status, run.err) == (
        2,
        "codeact: --approve-later keeps the question in the run: leave --approve and --no-save out.\n",
    )
