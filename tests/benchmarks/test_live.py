"""The table of tasks that a live model solves: what counts as right, how libraries are compared, traces as runs."""

from pathlib import Path

import pytest

from autogen_codeact.runs import load_run
from autogen_codeact.runs.messages import load_message


def row(library, task, verdict):
    trace = [
        {"messages": [{"role": "user", "content": "What is 6 * 7?"}], "answer": "```python\nprint(6 * 7)\n```"},
        {
            "messages": [
                {"role": "user", "content": "What is 6 * 7?"},
                {"role": "assistant", "content": "```python\nprint(6 * 7)\n```"},
                {"role": "user", "content": [{"type": "text", "text": "42"}]},
            ],
            "answer": "It is 42.",
        },
    ]
    counts = {"prompt_tokens": 30, "completion_tokens": 12, "seconds": 1.5, "seen": True}
    return {"library": library, "task": task, "verdict": verdict, "expected": "42", "trace": trace, **counts}


@pytest.mark.parametrize(
    ("text", "expected", "right"),
    [
        ("The sum is 12 and not 13.", "13", True),
        ("It is 13. ANSWER: 12", "13", False),
        ("ANSWER: 1,300.0\nThat was all, 7 steps.", "1300", True),
        ("[1,2 , 3]", "[1, 2, 3]", True),
        ("The word is 'nedrag'.", "nedrag", True),
        ("", "13", False),
    ],
)
def test_the_last_value_of_an_answer_counts(load, text, expected, right):
    assert load("live.tasks").is_right(text, expected) is right


def test_libraries_are_compared_on_the_tasks_that_both_had(load):
    report = load("live.report")
    tasks = [f"lists-{number}" for number in range(40)]
    rows = [row("ours, CodeAct", task, "right" if number % 2 else "wrong") for number, task in enumerate(tasks)]
    rows += [row("AutoGen", task, "right" if number % 4 == 1 else "error") for number, task in enumerate(tasks)]
    rows.append(row("AutoGen", "lists-99", "right"))
    assert report.table(rows).splitlines()[2:] == [
        "| ours, CodeAct | 20 of 40 | 40 | 30 | 12 | 1.5 | 0 | 0 |",
        "| AutoGen | 11 of 41 | 41 | 30 | 12 | 1.5 | 30 | 0 |",
    ]
    assert report.ratio(rows, "ours, CodeAct", "AutoGen").startswith(
        "ours, CodeAct against AutoGen, 40 tasks: 20 and 10 right, 2.00 times as many (95 % interval 1."
    )


def test_the_trace_of_a_task_is_a_run(load, tmp_path):
    load("live.runs").write_runs([row("ours, CodeAct", "lists-2", "right")], tmp_path)
    run = load_run(Path(tmp_path, "lists-2-ours-codeact-right"))
    messages = [load_message(event.message) for event in run if event.type == "message"]
    said = [(message.source, message.content) for message in messages]
    assert said == [
        ("user", "lists-2 with ours, CodeAct"),
        ("user", "What is 6 * 7?"),
        ("model", "```python\nprint(6 * 7)\n```"),
        ("user", "42"),
        ("model", "It is 42."),
        ("ours_CodeAct", "no answer\n\nExpected: 42. The answer is right."),
    ]
