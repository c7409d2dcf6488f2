"""`codeact batch`: many tasks with one command."""

import json
from pathlib import Path

import pytest
from autogen_core.models import AssistantMessage, UserMessage

from autogen_codeact.cli.batch import _Recording
from tests.cli.batch_support import ENV, Model, answers, doubled, rows, write_tasks
from tests.cli.support import codeact
from tests.openai_server import Reply

pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(200)]

REFUSED = Reply("Incorrect API key provided: sk-of-***ests", status=401)


@pytest.fixture(scope="module")
def model():
    with Model() as made:
        yield made


def test_batch_writes_results_and_a_summary(model, tmp_path):
    tasks = write_tasks(tmp_path, 6, topic=lambda number: f"topic {number}")
    done = model.run(tasks, tmp_path / "out", "--concurrency", 3)
    assert done.status == 0
    assert answers(tmp_path / "out") == doubled(6)
    assert {row["metadata"]["topic"] for row in rows(tmp_path / "out")} == {f"topic {number}" for number in range(6)}
    assert done.out.startswith("6 tasks: 6 completed\n")
    assert f"results: {tmp_path / 'out' / 'results.jsonl'}\n" in done.out


def test_same_command_again_runs_nothing(model, tmp_path):
    tasks = write_tasks(tmp_path, 4)
    first = model.run(tasks, tmp_path / "out")
    asked = dict(model.asked)
    again = model.run(tasks, tmp_path / "out")
    assert (again.status, again.out) == (first.status, first.out)
    said = "codeact: all tasks had results, so none was run: give another --out to do them again"
    assert (said in first.err, again.err.splitlines()[-1]) == (False, said)
    assert model.asked == asked


def test_json_is_one_object_with_the_summary(model, tmp_path):
    done = model.run(write_tasks(tmp_path, 3), tmp_path / "out", "--json", "--budget", "price=1:2")
    (last,) = done.objects
    assert (last["type"], last["ended"], last["completed"], last["folder"]) == (
        "summary",
        "complete",
        3,
        str(tmp_path / "out"),
    )
    assert last["cost"] == pytest.approx(3 * (7 * 1 + 3 * 2) / 1e6)


def test_error_that_only_the_user_can_mend_stops_the_batch(tmp_path):
    tasks = write_tasks(tmp_path, 100)
    with Model(every=[REFUSED]) as refusing:
        done = refusing.run(tasks, tmp_path / "out")
        assert len(refusing.asked) < 20
    assert done.status == 1
    assert done.err.endswith("\ncodeact: Check the key in OPENAI_API_KEY. Then the same command goes on from here\n")
    assert "sk-of-the-tests" not in done.out + done.err


def test_few_failures_do_not_stop_the_batch(tmp_path):
    tasks = write_tasks(tmp_path, 14)
    failing = {f"t{number}": [REFUSED] for number in range(9)}
    with Model(**failing) as partly:
        done = partly.run(tasks, tmp_path / "out", "--concurrency", 1)
    assert done.status == 1
    assert sum(row["outcome"] == "completed" for row in rows(tmp_path / "out")) == 5


def test_budget_ends_the_batch(model, tmp_path):
    tasks = write_tasks(tmp_path, 9)
    done = model.run(tasks, tmp_path / "out", "--budget", "tokens=25", "--concurrency", 1)
    assert done.status == 3
    assert "The budget of 25 tokens is used up" in done.err
    assert len(rows(tmp_path / "out")) == 3
    assert model.run(tasks, tmp_path / "out").status == 0
    assert answers(tmp_path / "out") == doubled(9)


def test_changed_option_is_named(model, tmp_path):
    tasks = write_tasks(tmp_path, 2)
    assert model.run(tasks, tmp_path / "out", "--act", "--budget", "steps=5").status == 0
    done = model.run(tasks, tmp_path / "out", "--act", "--budget", "steps=6", "--env", "TOKEN=secret-value")
    assert done.status == 2
    assert "environment, steps changed" in done.err
    assert "--accept-changes" in done.err
    assert model.run(tasks, tmp_path / "out", "--act", "--budget", "steps=6", "--accept-changes").status == 0
    assert "secret-value" not in (tmp_path / "out" / "batch.json").read_text()


def test_options_of_limits_may_change(model, tmp_path):
    tasks = write_tasks(tmp_path, 2)
    assert model.run(tasks, tmp_path / "out").status == 0
    assert (
        model.run(
            tasks, tmp_path / "out", "--concurrency", 2, "--option", "attempts=5", "--budget", "seconds=60"
        ).status
        == 0
    )


def test_recorded_answers_by_task(tmp_path):
    tasks = write_tasks(tmp_path, 2)
    recording = tmp_path / "answers.json"
    recording.write_text(json.dumps({"tasks": {"t0": ["Zero."], "t1": ["```python\nprint(1 + 1)\n```", "Two."]}}))
    options = ("--out", tmp_path / "out", "--model", f"replay:{recording}", "--sandbox", "bubblewrap", "--act")
    assert codeact("batch", tasks, *options).status == 0
    assert answers(tmp_path / "out") == {"t0": "Zero.", "t1": "Two."}


async def test_recorded_answers_go_on_after_those_of_the_conversation(tmp_path):
    recording = tmp_path / "answers.json"
    recording.write_text('["one", "two", "three"]')
    for said, expected in (([], "one"), (["one"], "two"), (["one", "two"], "three"), (["other"], "one")):
        messages = [AssistantMessage(content=each, source="coder") for each in said]
        client = _Recording(str(recording), recording.read_text()).client("t0", 60)
        answer = await client.create([UserMessage(content="task", source="user"), *messages])
        assert answer.content == expected


def test_no_sandbox_is_an_error_before_any_task(model, tmp_path):
    tasks = write_tasks(tmp_path, 3)
    asked = dict(model.asked)
    options = ("--out", tmp_path / "out", "--model", "scripted", "--base-url", model.server.base_url)
    env = {**ENV, "DOCKER_HOST": f"unix://{tmp_path / 'none.sock'}"}
    done = codeact("batch", tasks, *options, "--sandbox", "docker", env=env)
    assert done.status == 2
    assert "none.sock" in done.err
    assert model.asked == asked
    assert not (tmp_path / "out").exists()


def test_first_commands_of_the_docs(tmp_path):
    samples = Path(__file__).parents[2] / "samples"
    options = ("--out", tmp_path / "primes", "--act", "--model", f"replay:{samples / 'batch_answers.json'}")
    done = codeact("batch", samples / "batch_tasks.jsonl", *options, "--sandbox", "bubblewrap")
    page = (samples.parent / "docs" / "batch.md").read_text(encoding="utf-8")
    assert done.status == 0
    assert done.out.replace(f"{tmp_path}/", "") in page
    report = codeact("batch", "report", tmp_path / "primes")
    assert report.status == 0
    assert "66.7" in report.out
    assert codeact("batch", "report", tmp_path / "primes", "--json").objects[0]["passed"] == 2


def test_key_that_a_server_quotes_is_not_kept(tmp_path):
    tasks = write_tasks(tmp_path, 1)
    with Model(t0=[Reply("the key sk-of-the-tests is wrong", status=401)]) as quoting:
        done = quoting.run(tasks, tmp_path / "out")
    (row,) = rows(tmp_path / "out")
    assert row["error"] == "Error code: 401 - the key [secret] is wrong"
    assert "sk-of-the-tests" not in done.out + done.err
    kept = [file.read_text(errors="replace") for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert not any("sk-of-the-tests" in text for text in kept)
