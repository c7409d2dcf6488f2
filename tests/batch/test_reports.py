"""Summary, comparison and tables of batches."""

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_codeact.batch import index
from autogen_codeact.batch.errors import BatchFolderError
from autogen_codeact.batch.report import Change, compare, comparison_text, summary_text
from autogen_codeact.batch.rows import AttemptRecord, CheckResult, Row
from autogen_codeact.batch.summary import Group, Percentiles, pass_at, summarize, write_summary
from tests.batch.support import load_rows

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def row(task: str, passed: bool | None = None, **fields: Any) -> Row:
    checks = [] if passed is None else [CheckResult(kind="exact", passed=passed)]
    return Row(**{"id": task, "outcome": "completed", "answer": "x", "passed": passed, "checks": checks, **fields})


def batch(folder: Path, *rows: Row, configuration: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "results.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in rows))
    if configuration is not None:
        (folder / "batch.json").write_text(json.dumps({"schema_version": 1, "configuration": configuration}))
    return folder


def repeats(**tasks: str) -> list[Row]:
    """Return the rows of tasks by what their repetitions gave: "110": the first two passed."""
    return [row(name, each == "1", repeat=n) for name, tries in tasks.items() for n, each in enumerate(tries, 1)]


FAILURE = AttemptRecord(started=START, seconds=1, error_class="SandboxDied", error="gone", engine="a")
ROWS = (
    row("a", True, steps=1, seconds=2, started=START, prompt_tokens=10, completion_tokens=5, cost=0.5, model_calls=2),
    row(
        "b", False, steps=3, seconds=4, started=START + timedelta(seconds=10), cost=0.25, failures=[FAILURE], attempts=2
    ),
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


def test_summary_has_counts_rates_tokens_and_percentiles(tmp_path: Path) -> None:
    summary = write_summary(batch(tmp_path, *ROWS))
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written == json.loads(summary.model_dump_json())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["results.jsonl", "summary.json"]
    assert summary.model_dump(exclude={"pass_rate", "pass_rate_interval", "pass_at"}) == {
        "tasks": 5,
        "rows": 5,
        "repeats": 1,
        "completed": 2,
        "stopped": 1,
        "failed": 1,
        "invalid": 1,
        "checked": 3,
        "passed": 1,
        "steps": 13,
        "model_calls": 2,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost": 0.75,
        "seconds": 7,
        "wall_seconds": 14,
        "attempts": 6,
        "resumed": 0,
        "errors": {"APIError": 1, "BadTask": 1, "NoAnswer": 1},
        "failures": {"SandboxDied": 1},
        "seconds_percentiles": {"p50": 2, "p90": 4, "p99": 4, "max": 4},
        "steps_percentiles": {"p50": 3, "p90": 9, "p99": 9, "max": 9},
        "unsuccessful": [
            {"id": "b", "repeat": 1, "outcome": "completed", "reason": "", "log": None},
            {"id": "c", "repeat": 1, "outcome": "failed", "reason": "APIError: no", "log": None},
            {"id": "d", "repeat": 1, "outcome": "invalid", "reason": "BadTask", "log": None},
            {"id": "e", "repeat": 1, "outcome": "stopped", "reason": "NoAnswer", "log": None},
        ],
        "by": None,
        "groups": {},
        "damaged": 0,
    }
    assert summary.pass_rate == pytest.approx(1 / 3)
    assert summary.pass_rate_interval == pytest.approx((0.0615, 0.7923), abs=1e-4)
    assert summary.pass_at == {1: pytest.approx(1 / 3)}


def test_summary_by_a_field_of_the_metadata(tmp_path: Path) -> None:
    assert summarize(batch(tmp_path, *ROWS), by="level").groups == {
        "hard": Group(rows=2, completed=0, checked=1, passed=0, pass_rate=0.0),
        "null": Group(rows=3, completed=2, checked=2, passed=1, pass_rate=0.5),
    }
    many = summarize(batch(tmp_path, *(row(str(n), True, metadata={"x": [n]}) for n in range(210))), by="x").groups
    assert len(many) == 201
    assert many["(others)"] == Group(rows=10, completed=10, checked=10, passed=10, pass_rate=1.0)


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


def test_line_of_a_row_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autogen_codeact.batch.index.MAX_LINE", 500)
    batch(tmp_path, row("a", answer="x" * 2000), row("b"))
    assert [each.id for each in load_rows(tmp_path)] == ["b"]


def test_repeats_have_pass_at_k(tmp_path: Path) -> None:
    rows = repeats(a="1111", b="1000", c="0000")
    summary = summarize(batch(tmp_path, *rows))
    assert summary.pass_at == {1: pytest.approx(5 / 12), 2: pytest.approx((1 + 0.5) / 3), 4: pytest.approx(2 / 3)}
    assert "| pass@k                                | 41.7% (k = 1), 66.7% (k = 4) |" in summary_text(summary)


@given(tries=st.integers(1, 8), data=st.data())
def test_pass_at_k_is_the_share_of_all_choices_with_a_pass(tries: int, data: st.DataObject) -> None:
    passed, k = data.draw(st.integers(0, tries)), data.draw(st.integers(1, tries))
    choices = list(combinations([True] * passed + [False] * (tries - passed), k))
    assert pass_at(k, tries, passed) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_interval_of_a_rate_is_that_of_wilson(tmp_path: Path) -> None:
    rows = [row(str(n), n < 8) for n in range(10)]
    assert summarize(batch(tmp_path, *rows)).pass_rate_interval == pytest.approx((0.4902, 0.9433), abs=1e-4)
    none = summarize(batch(tmp_path, *(row(str(n), False) for n in range(5)))).pass_rate_interval
    assert none is not None
    assert none[0] == 0


def test_comparison_task_by_task(tmp_path: Path) -> None:
    first = batch(
        tmp_path / "one",
        *(row(name, True) for name in ("both", "worse", "error", "gone")),
        *(row(name, False) for name in ("better", "neither")),
        configuration={"model": "small", "steps": 10, "agent": "x"},
    )
    second = batch(
        tmp_path / "two",
        *(row(name, True) for name in ("both", "better", "new|\x1b[31m")),
        *(row(name, False) for name in ("worse", "neither")),
        row("error", None, outcome="failed"),
        configuration={"model": "large", "steps": 10, "team": {"a": 1}, "agent": "x"},
    )
    found = compare(first, second)
    assert found.model_dump(exclude={"first", "second"}) == {
        "measure": "passed",
        "newly_passed": [{"id": "better", "first": 0, "second": 1}],
        "newly_failed": [{"id": "worse", "first": 1, "second": 0}],
        "unchanged": 2,
        "not_comparable": ["error", "gone", "new|\x1b[31m"],
        "configuration": {"model": ("small", "large"), "team": (None, {"a": 1})},
    }
    text = comparison_text(found)
    assert "| better | 0.0%  | 100.0% |" in text
    assert "- new|\\x1b[31m\n" in text
    assert "| model   | small | large    |" in text
    assert json.loads(found.model_dump_json())["newly_passed"] == [{"id": "better", "first": 0.0, "second": 1.0}]


def test_comparison_of_repeats_compares_how_often_a_task_passed(tmp_path: Path) -> None:
    first = batch(tmp_path / "one", *repeats(a="10", b="11", c="10", d="00"))
    second = batch(tmp_path / "two", *repeats(a="11", b="01", c="01", d="00"))
    found = compare(first, second)
    assert found.newly_passed == [Change(id="a", first=0.5, second=1.0)]
    assert found.newly_failed == [Change(id="b", first=1.0, second=0.5)]
    assert found.unchanged == 2


def test_batches_without_checks_are_compared_by_their_answers(tmp_path: Path) -> None:
    first = batch(tmp_path / "one", row("a"), row("b"), *(row(f"x{n:02}") for n in range(25)))
    second = batch(
        tmp_path / "two",
        row("a"),
        *(row(f"{name}", outcome="failed") for name in ["b", *(f"x{n:02}" for n in range(25))]),
    )
    found = compare(first, second)
    assert found.measure == "completed"
    assert (len(found.newly_failed), found.unchanged, found.newly_passed) == (26, 1, [])
    text = comparison_text(found, shown=20)
    assert "Neither batch has checks: a task with an answer counts as passed." in text
    assert re.search(r"\| newly failed +\| 26 ", text)
    assert "… and 6 more (--json lists all)" in text
    assert "x18" in text
    assert "x19" not in text


def test_text_of_a_summary(tmp_path: Path) -> None:
    text = summary_text(summarize(batch(tmp_path, *ROWS), by="level"))
    assert "| passed                                | 1 of 3                |" in text
    assert "| pass rate (95% interval)              | 33.3% (6.1% to 79.2%) |" in text
    assert "## Errors of tasks\n\n| error    | count |\n|----------|-------|\n| APIError | 1     |" in text
    assert "| hard  | 2    | 0         | 0 of 1 | 0.0%      |" in text
    assert summary_text(summarize(batch(tmp_path))).startswith("|")


def test_tasks_that_did_not_pass_are_named_with_the_reason(tmp_path: Path) -> None:
    wrong = CheckResult(kind="exact", passed=False, detail="expected '1',\nnot '2'")
    many = [row(f"n{number}", False, repeat=2, checks=[wrong], log=f"runs/n{number}") for number in range(30)]
    text = summary_text(summarize(batch(tmp_path, row("fine", True), *many)))
    part = text.partition("## Not passed or without an answer (the first ones)\n\n")[2].splitlines()
    assert part[2] == "| n0 (repeat 2)  | completed | expected '1', not '2' | runs/n0  |"
    assert len(part) == 2 + 20
    assert "## Not" not in summary_text(summarize(batch(tmp_path / "good", row("fine", True))))


def test_folder_without_results_is_an_error(tmp_path: Path) -> None:
    for function in (summarize, write_summary):
        with pytest.raises(BatchFolderError, match=r" is not the folder of a batch: there is no results\.jsonl\.$"):
            function(tmp_path / "none")


def test_rows_are_a_data_frame_in_one_line(tmp_path: Path) -> None:
    batch(tmp_path, *ROWS, row("007", answer="1e3"))
    frame = pd.read_json(tmp_path / "results.jsonl", lines=True, dtype=False)  # without it: 7 and 1000
    assert list(frame.columns) == list(Row.model_fields)
    assert frame["id"].tolist() == ["a", "b", "c", "d", "e", "007"]
    assert frame.groupby("outcome")["seconds"].sum()["completed"] == 6
    assert (frame["passed"].sum(), frame["answer"][5]) == (1, "1e3")


def test_percentiles_of_one_row(tmp_path: Path) -> None:
    assert summarize(batch(tmp_path, row("a", seconds=3))).seconds_percentiles == Percentiles(
        p50=3, p90=3, p99=3, max=3
    )


def test_full_disk_of_the_index_is_an_error_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch(tmp_path, *(row(str(number), log="x" * 10_000) for number in range(30)))
    monkeypatch.setattr("autogen_codeact.batch.index._SCHEMA", "PRAGMA max_page_count = 20;" + index._SCHEMA)
    with pytest.raises(BatchFolderError, match=r"\(database or disk is full\): free some space there, or set TMPDIR"):
        summarize(tmp_path)
