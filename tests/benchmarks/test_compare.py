"""The harness of the benchmarks: it measures variants, gives none to wrong answers, and reports what got slower."""

import asyncio
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Imports a module of the benchmark."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.mark.usefixtures("bubblewrap")
async def test_variant_with_right_answers_has_times_and_with_wrong_answers_none(load):
    cells, harness = load("sidebyside.cells"), load("sidebyside.harness")
    async with asyncio.timeout(50), harness.Bench(quick=True) as bench:
        variants = ["bare subprocess", "bubblewrap, session", "bubblewrap, wrong"]
        await cells.blocks(bench, cells.TINY, variants)
        keys = await bench.open("bubblewrap, session", cell=cells.START)
        await bench.close("bubblewrap, session", keys, cell=cells.STOP)
    assert bench.absent == {"bubblewrap, wrong": "WrongAnswer: '41\\n' instead of '42\\n'"}
    counts = {
        cell: {variant: len(values) for variant, values in variants.items()} for cell, variants in bench.seconds.items()
    }
    right = {"bare subprocess": 6, "bubblewrap, session": 6}
    once = {"bubblewrap, session": 1}
    assert counts == {cells.PYTHON: right, cells.SHELL: right, cells.START: once, cells.STOP: once}
    assert all(value > 0 for variants in bench.seconds.values() for values in variants.values() for value in values)


def test_target_is_judged_by_its_ratio_and_not_without_figures(load):
    cells, targets = load("sidebyside.cells"), load("sidebyside.targets")
    faster = targets.Target(cells.PYTHON, "docker, process", cells.COMMAND_LINE, 40)
    shorter = targets.Target(cells.START, "docker, process", cells.COMMAND_LINE, most=0.6)
    absolute = targets.Target(cells.START, "docker, process", most=60)
    variants = {"docker, process": [0.1] * 5, cells.COMMAND_LINE: [2.0] * 5}
    seconds = {cells.PYTHON: variants, cells.START: variants}
    judged = [targets.judge(target, seconds, {}) for target in (faster, shorter, absolute)]
    assert [found["figure"] for found in judged] == [pytest.approx((x, x, x)) for x in (20, 0.05, 100)]
    assert [found["met"] for found in judged] == [False, True, False]
    assert all(targets.judge(target, {}, {}) is None for target in targets.TARGETS)


def test_variant_slower_beyond_its_interval_is_reported(load):
    compare = load("compare")
    last = {"python block": {"docker, process": 10.0, "docker, session": 10.0, "bubblewrap, process": 10.0}}
    found = {
        "python block": {
            "docker, process": (6.0, 5.0, 6.9),
            "docker, session": (6.0, 5.0, 7.1),
            "bubblewrap, session": (1.0, 1.0, 1.0),
        }
    }
    assert compare.slower(found, last) == [
        "docker, process, python block: 6.00× as fast as bare subprocess (5.00 to 6.90), was 10.00×"
    ]


def test_error_text_contains_no_local_path(load):
    harness = load("sidebyside.harness")
    reason = "Missing: no wheels: see https://packages.example/simple and /opt/of/this/machine for more"
    assert harness.without_local_paths(reason) == "Missing: no wheels: see … and … for more"


@pytest.mark.usefixtures("bubblewrap")
async def test_use_of_blocks_shells_and_sessions_is_measured(load):
    worker = load("sidebyside.worker").Worker(["floors", "ours", "cell_probes"])
    block = {"times": 2, "code": "echo $((6 * 7))", "language": "sh", "expect": "42\n"}
    steps = [["x = 41", ""], ["print(x + 1)", "42"]]
    keys = ["a", "b"]
    async with asyncio.timeout(50):
        await worker.open("bubblewrap, session", keys)
        try:
            found = [
                await worker.probe("use of blocks", keys=keys, **block),
                await worker.probe("use of blocks together", keys=keys, **block),
                await worker.probe("use of rollbacks", keys=keys, sessions=2),
                await worker.probe("use of sessions", keys=keys, sessions=[steps, steps]),
            ]
            with pytest.raises(load("sidebyside.variant").WrongAnswer):
                await worker.probe("use of blocks", keys=keys, **{**block, "expect": "41\n"})
            with pytest.raises(load("sidebyside.variant").WrongAnswer):
                await worker.probe("use of sessions", keys=keys, sessions=[[["print(1)", "2"]]])
        finally:
            await worker.close(keys)
    assert [use["count"] for use in found] == [2, 4, 2, 2]
    assert found[3]["blocks"] == 4
    assert all(use["seconds"] > 0 and use["switches"] > 0 and use["processor"]["machine"] > 0 for use in found)


def test_text_about_cells_follows_from_what_they_use(load):
    costs, page, cells = load("sidebyside.cell_costs"), load("sidebyside.cells_page"), load("sidebyside.cells")

    def use(ms, count=10):
        used = {"machine": 2e-3 * ms * count, "containers": 1e-3 * ms * count, "client": None, "engine": None}
        counts = {"switches": 40 * count, "faults": 500 * count, "idles": 5 * count}
        return {"count": count, "seconds": 1e-3 * ms * count, "processor": used, **counts}

    figures = {
        "processors": 2,
        "absent": {"raw echo": "no engine"},
        "seconds": {
            cells.SHELL: {costs.DOCKER: [0.005] * 5},
            cells.MANY: {costs.DOCKER: [0.002] * 5, cells.COMMAND_LINE: [0.032] * 5},
            cells.GOLDEN: {costs.DOCKER: [0.01] * 5, cells.COMMAND_LINE: [0.12] * 5},
        },
        "uses": {
            costs.SHELL: {
                costs.DOCKER: use(5.0),
                "docker, process": use(3.0),
                cells.ECHO: use(0.5),
                cells.SUBPROCESS: use(1.0),
                costs.ENV: use(2.0),
            },
            costs.MANY: {costs.DOCKER: use(2.0), cells.COMMAND_LINE: use(30.0)},
            costs.SESSIONS: {
                costs.DOCKER: {**use(10.0), "blocks": 20},
                cells.COMMAND_LINE: {**use(120.0), "blocks": 20},
                f"{costs.DOCKER}, {costs.ROLLBACK}": use(4.0),
            },
        },
    }
    assert [(row[1].partition("**,")[0].split("**")[1], row[2]) for row in page.targets(figures)] == [
        ("16×", True),
        ("12×", False),
        ("5 ms", False),
    ]
    text = page.section(figures)
    parts = "5.00 ms | 10.00 ms | 5.00 ms | 0.00 ms | 0.00 ms | 5.00 ms | 40 | 500 | 5"
    assert f"| shell block in a session: docker, session | {parts} |" in text
    words = " ".join(text.split())
    assert "What remains, 2.50 ms, is the session's own work" in words
    assert "at the same time** keeps" not in words  # its echo is missing
    assert "**A recorded session** of 2.0 blocks takes 10.00 ms: 4.00 ms for the return" in words
    assert "and 3.00 ms for each block with its checkpoint" in words
    assert "Without any return to the beginning it would be 20.0×." in words
    assert "Not measured: raw echo: no engine" in words
