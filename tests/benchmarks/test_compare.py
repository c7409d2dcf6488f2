"""The harness of the benchmarks: it measures variants, gives none to wrong answers, and reports what got slower."""

import asyncio
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


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


def test_part_of_a_page_is_replaced_and_the_rest_kept(load, tmp_path):
    page, file = load("sidebyside.page"), tmp_path / "page.md"
    file.write_text("Head\n\n<!-- speed: written by make -->\n\nold\n\n<!-- /speed -->\n\nTail\n")
    for text in ("first", r"new \1"):
        page.write_part(file, "speed", text)
    assert file.read_text() == "Head\n\n<!-- speed: written by make -->\n\nnew \\1\n\n<!-- /speed -->\n\nTail\n"
    with pytest.raises(ValueError, match=r"page.md has no part other"):
        page.write_part(file, "other", "text")


def test_pages_have_the_parts_that_programs_write(load):
    pages = {
        "README.md": ["speed"],
        "docs/benchmarks.md": ["gains", "batches", "all", "more-batches"],
        "docs/scaling.md": ["measured"],
    }
    for name, parts in pages.items():
        text = (FOLDER.parent / name).read_text(encoding="utf-8")
        assert [part for part in parts if f"<!-- {part}: " not in text or f"<!-- /{part} -->" not in text] == []


def test_page_is_written_from_figures(load):
    cells, page = load("sidebyside.cells"), load("sidebyside.page")
    variants = {"docker, process": [0.002] * 5, "docker, session": [0.003] * 5, cells.COMMAND_LINE: [0.06] * 5}
    figures = {
        "seconds": {cells.PYTHON: variants, cells.START: variants, cells.GOLDEN: variants},
        "facts": {"docker, idle memory": {"sandbox": 18e6, "shim": 12.7e6}},
        "absent": {"smolagents Docker": "no wheels"},
        "failed_rounds": {cells.COMMAND_LINE: 2},
        "curves": {"files": {"docker, process": [[1, [0.002]], [1000, [0.06]]]}},
        "versions": {"autogen-ext": "0.7.5"},
        "machine": "2 processors",
        "day": "1 May 2026",
        "note": "",
    }
    text = page.everything(figures)
    assert "Missed:\n\n- Python block: docker, session **20×**, ≥ 30× as fast as AutoGen\n" in text
    assert "- idle sandbox: memory: docker **18 MB**, ≤ 14 MB\n" in text
    assert "| docker, session | 3 ms (20×) | - | 3 ms (20×) | - |" in text
    assert "- Recorded session: AutoGen 60 ms; docker, process 2 ms (30×); docker, session 3 ms (20×)." in text
    assert "every Docker executor needs 12.7 MB." in text
    assert "![one small block while work_dir contains this many files](benchmarks/files.svg)" in text
    assert (
        "- smolagents Docker: no wheels\n- autogen-ext Docker command line: 2 rounds with many blocks at once broke"
        in text
    )
    assert "| a Python block in a new process (process mode) | **2 ms** | 60 ms | - | - |" in page.gains(figures)
    assert "on 1 May 2026 in one run on one machine (2 processors; autogen-ext 0.7.5)." in page.gains(figures)
