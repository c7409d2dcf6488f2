"""The benchmark's harness: it gives figures, an arm that answers wrongly gets none, and what got slower is named."""

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
async def test_a_tiny_run_has_a_time_for_each_right_answer_and_none_for_a_wrong_one(load):
    cells, harness = load("sidebyside.cells"), load("sidebyside.harness")
    async with asyncio.timeout(50), harness.Bench(quick=True) as bench:
        arms = ["bare subprocess", "bubblewrap, session", "bubblewrap, wrong"]
        await cells.blocks(bench, cells.TINY, arms)
        keys = await bench.open("bubblewrap, session", cell=cells.START)
        await bench.close("bubblewrap, session", keys, cell=cells.STOP)
    assert bench.absent == {"bubblewrap, wrong": "WrongAnswer: '41\\n' instead of '42\\n'"}
    counts = {cell: {arm: len(values) for arm, values in arms.items()} for cell, arms in bench.seconds.items()}
    right = {"bare subprocess": 6, "bubblewrap, session": 6}
    once = {"bubblewrap, session": 1}
    assert counts == {cells.PYTHON: right, cells.SHELL: right, cells.START: once, cells.STOP: once}
    assert all(value > 0 for arms in bench.seconds.values() for values in arms.values() for value in values)


def test_a_target_is_judged_by_the_ratio_and_one_without_figures_is_not(load):
    cells, targets = load("sidebyside.cells"), load("sidebyside.targets")
    faster = targets.Target(cells.PYTHON, "docker, process", cells.COMMAND_LINE, 40)
    shorter = targets.Target(cells.START, "docker, process", cells.COMMAND_LINE, most=0.6)
    absolute = targets.Target(cells.START, "docker, process", most=60)
    arms = {"docker, process": [0.1] * 5, cells.COMMAND_LINE: [2.0] * 5}
    seconds = {cells.PYTHON: arms, cells.START: arms}
    judged = [targets.judge(target, seconds, {}) for target in (faster, shorter, absolute)]
    assert [found["figure"] for found in judged] == [pytest.approx((x, x, x)) for x in (20, 0.05, 100)]
    assert [found["met"] for found in judged] == [False, True, False]
    assert all(targets.judge(target, {}, {}) is None for target in targets.TARGETS)


def test_what_got_slower_beyond_its_interval_is_named(load):
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


def test_a_reason_names_no_place_of_this_machine(load):
    harness = load("sidebyside.harness")
    reason = "Missing: no wheels: see https://packages.example/simple and /opt/of/this/machine for more"
    assert harness.without_places(reason) == "Missing: no wheels: see … and … for more"
