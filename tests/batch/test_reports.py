"""Summary and report of a batch."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.batch.errors import BatchError
from autogen_codeact.batch.results import CheckResult, Row, summarize, write_summary
from autogen_codeact.cli.batch_display import print_report
from tests.batch.support import load_rows

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def row(task: str, passed: bool | None = None, **fields: Any) -> Row:
    checks = [] if passed is None else [CheckResult(kind="exact", passed=passed)]
    return Row(**{"id": task, "outcome": "completed", "answer": "x", "passed": passed, "checks": checks, **fields})


def batch(folder: Path, *rows: Row) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "results.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in rows))
    return folder


ROWS = (
    row("a", True, steps=1, seconds=2, started=START, prompt_tokens=10, completion_tokens=5, cost=0.5, model_calls=2),
    row("b", False, steps=3, seconds=4, started=START + timedelta(seconds=10), cost=0.25, attempts=2),
    row("c", None, outcome="failed", answer=None, error_class="APIError", error="no", metadata={"level": "hard"}),
    row("d", None, outcome="invalid", answer=None, error_class="BadTask"),
    row(
        "e",
        False,
        outcome="stopped",
        answer=None,
        steps=9,
        seconds=1,
        error_class="NoAnswer",
        metadata={"level": "hard"},
    ),
)


def test_summary_has_counts_rates_and_tokens(tmp_path: Path) -> None:
    summary = write_summary(batch(tmp_path, *ROWS))
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written == json.loads(summary.model_dump_json())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["results.jsonl", "summary.json"]
    assert summary.model_dump(exclude={"pass_rate"}) == {
        "tasks": 5,
        "rows": 5,
        "completed": 2,
        "stopped": 1,
        "waiting": 0,
        "failed": 1,
        "invalid": 1,
        "checked": 3,
        "passed": 1,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost": 0.75,
        "errors": {"APIError": 1, "BadTask": 1, "NoAnswer": 1},
        "unsuccessful": [
            {"id": "b", "repeat": 1, "outcome": "completed", "reason": "", "log": None},
            {"id": "c", "repeat": 1, "outcome": "failed", "reason": "APIError: no", "log": None},
            {"id": "d", "repeat": 1, "outcome": "invalid", "reason": "BadTask", "log": None},
            {"id": "e", "repeat": 1, "outcome": "stopped", "reason": "NoAnswer", "log": None},
        ],
        "damaged": 0,
    }
    assert summary.pass_rate == pytest.approx(1 / 3)


def test_last_row_of_a_task_counts_and_damaged_lines_are_counted(tmp_path: Path) -> None:
    batch(tmp_path, row("a", None, outcome="failed"), row("b", True), row("a", True), row("a", False, repeat=2))
    with open(tmp_path / "results.jsonl", "ab") as file:
        file.write(b'{"id"\n[]\n{"id": "x", "repeat": 1}\n\xff\n' + row("c").model_dump_json().encode())
    assert [(each.id, each.repeat, each.passed) for each in load_rows(tmp_path)] == [
        ("b", 1, True),
        ("a", 1, True),
        ("a", 2, False),
    ]
    assert (summarize(tmp_path).rows, summarize(tmp_path).damaged) == (3, 4)


def report_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert print_report(folder) == 0
    return capsys.readouterr().out.splitlines()


def test_report_has_what_the_summary_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_lines(batch(tmp_path, *ROWS), capsys) == [
        "5 tasks: 2 completed, 1 stopped, 1 failed, 1 invalid",
        "checks: 1 of 3 passed (33.3%)",
        "tokens: 10 read, 5 written, cost 0.7500",
        "errors: APIError 1, BadTask 1, NoAnswer 1",
        "completed: b: not passed",
        "failed: c: APIError: no",
        "invalid: d: BadTask",
        "stopped: e: NoAnswer",
    ]
    assert print_report(tmp_path, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(summarize(tmp_path).model_dump_json())


def test_tasks_that_did_not_pass_are_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = CheckResult(kind="exact", passed=False, detail="expected '1',\nnot '2'")
    many = [row(f"n{number}|\x1b[31m", False, repeat=2, checks=[wrong], log=f"runs/n{number}") for number in range(30)]
    lines = report_lines(batch(tmp_path, row("fine", True), *many), capsys)
    part = [line for line in lines if line.startswith("completed: ")]
    assert part[0] == "completed: n0| (repeat 2): expected '1', not '2' (runs/n0)"
    assert len(part) == 20
    good = report_lines(batch(tmp_path / "good", row("fine", True)), capsys)
    assert not any(line.startswith("completed: ") for line in good)


def test_folder_without_results_is_an_error(tmp_path: Path) -> None:
    for function in (summarize, write_summary):
        with pytest.raises(BatchError, match=r" is not the folder of a batch: there is no results\.jsonl\.$"):
            function(tmp_path / "none")
