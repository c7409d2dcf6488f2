"""Notebooks run in a session as they do in an IPython kernel. `benchmarks/notebooks.py --expect` has measured the kernel."""

import asyncio
import json
import shutil
import tarfile
from pathlib import Path

import pytest

EXPECTED = json.loads(Path(__file__).with_name("notebook_results.json").read_text())


@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize("name", EXPECTED)
async def test_cells_do_what_they_do_in_an_ipython_kernel(load, shared_data, tmp_path, name):
    notebooks, runs, cells = load("notebooks"), load("notebook_runs"), load("notebook_cells")
    with tarfile.open(shared_data / "notebooks/notebooks.tar.gz") as tar:
        tar.extract(f"./{name}", tmp_path, filter="data")
    code = notebooks.read_cells(tmp_path / name)
    copy = tmp_path / "copy"
    await asyncio.to_thread(shutil.copytree, (tmp_path / name).parent, copy)
    found = await runs.in_session(code, copy, runs.Settings(timeout=50), kernel=False)
    unlike = [
        (number, names, expected["value"], did["value"], did["error"])
        for number, (expected, did) in enumerate(zip(EXPECTED[name], found, strict=True))
        if (names := cells.unlike(expected, did))
    ]
    assert unlike == []


def test_comparison_counts_only_what_the_kernel_repeats(load):
    cells = load("notebook_cells")

    def did(end="ok", value=None, figures=()):
        return {"end": end, "value": value, "text": "", "error": "", "figures": list(figures)}

    first = [did(value="1"), did(value="random 1"), did("KeyError"), did("timeout"), did()]
    second = [did(value="1"), did(value="random 2"), did("KeyError"), did(), did()]
    ours = [did(value="2"), did(value="random 3"), did(), did(), did("NameError")]
    found = cells.differences(["1", "r()", "d[1]", "loop()", "x"], first, second, ours)
    assert [(cell.end, cell.value) for cell in found] == [
        (True, False),
        (True, None),
        (False, None),
        (None, None),
        (False, None),
    ]
    assert cells.agreement(found) == [
        "cells end the same: 2 of 4, 50.0 %",
        "cells with figures show as many: 0 of 0, 100.0 %",
        "figures have the same size and image: 0 of 0, 100.0 %",
        "values print the same: 0 of 1, 0.0 %",
    ]
    assert [cells.unlike(cells.stable_result(a, b), c) for a, b, c in zip(first, second, ours, strict=True)] == [
        ["value"],
        [],
        ["end"],
        [],
        ["end"],
    ]
