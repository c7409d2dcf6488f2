"""How often the list of runs reads a log."""

import time
from types import SimpleNamespace

from autogen_codeact.viewer import catalog
from autogen_codeact.viewer.catalog import Catalog


def test_the_log_of_a_running_run_is_read_again_after_ten_times_the_time_that_reading_took(tmp_path, monkeypatch):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "events.jsonl").write_text("{}\n")
    clock = SimpleNamespace(now=1000.0)
    outcomes = iter(["running", "running", "completed"])
    read = []

    def summary_row(name, path):
        clock.now += 2  # seconds that reading takes
        read.append(name)
        return {"id": name, "outcome": next(outcomes)}

    monkeypatch.setattr(catalog, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(catalog, "summary_row", summary_row)
    runs = Catalog(tmp_path / "runs")

    def look(after_s: float) -> int:
        clock.now += after_s
        until = time.monotonic() + 30
        while runs.rows()[2]:
            assert time.monotonic() < until
        return len(read)

    assert [look(0), look(5), look(10), look(10), look(19), look(2), look(60)] == [1, 1, 1, 2, 2, 3, 3]
    assert [row["outcome"] for row in runs.rows()[0]] == ["completed"]
