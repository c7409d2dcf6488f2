"""`codeact run --act`: an agent that works in steps, with a recording."""

import pytest

from tests.cases import case
from tests.cli.support import code, codeact, replay

pytestmark = pytest.mark.usefixtures("docker_engine")

LOOKS = "I look first.\n" + code("x = 6", "1 / 0")
ANSWERS = code("final_answer(x * 7)")


def test_each_step_has_a_title_and_variables_persist(tmp_path):
    done = codeact("run", "What is 6*7?", "--act", "--save", "none", "--model", replay(tmp_path, LOOKS, "", ANSWERS))
    assert (done.status, done.err) == (0, "")
    titles = [line for line in done.out.splitlines() if line.startswith("== ")]
    assert titles == [
        "== Task ==",
        "== The model writes code (step 1) ==",
        "== Step 1 in the sandbox ==",
        "== The model writes code (step 3) ==",
        "== Step 3 in the sandbox ==",
        "== The model's answer ==",
    ]
    assert done.out.endswith("== The model's answer ==\n42\n\n")


def test_answer_at_the_step_limit_is_status_1(tmp_path):
    model = replay(tmp_path, code("print(1)"), "I had no time.")
    done = codeact("run", "What?", "--act", "--budget", "steps=1", "--model", model, "--json")
    assert (done.status, done.err) == (1, "")
    assert done.objects[-2]["content"] == "I had no time."
    assert done.objects[-2]["metadata"] == {"steps": "1", "stopped": "max_steps"}


def test_options_that_can_not_be_combined_are_refused(tmp_path_factory):
    for options, words in [
        (["--act", "--team"], "--act and --team can't be combined: choose one."),
        (["--act", "--budget", "retries=1"], "--budget retries is for an agent without --act and --team."),
        (["--act", "--option", "mode=process"], "--act needs a session: leave --option mode=process out."),
        (["--budget", "steps=3"], "--budget steps is for --act and --team."),
    ]:
        with case(options, words):
            tmp_path = tmp_path_factory.mktemp("case")
            done = codeact("run", "What?", *options, "--model", replay(tmp_path, "Hm."))
            assert (done.status, done.out) == (2, "")
            assert words in " ".join(done.err.split())


def test_person_is_told_the_flag_that_would_help(tmp_path):
    options = "--package no_such_module (packages=['no_such_module']) or --allow-pip (allow_pip=True)"
    hint = f"Hint: no_such_module is not installed. {options} would help."
    page = tmp_path / "page.md"
    page.write_text(code("import no_such_module"))
    ran = codeact(
        "run",
        "What?",
        "--act",
        "--save",
        "none",
        "--model",
        replay(tmp_path, page.read_text(), code("final_answer(1)")),
    )
    executed = codeact("exec", page)
    for done in (ran, executed):
        assert [line for line in done.out.splitlines() if "Hint" in line] == [hint], done
