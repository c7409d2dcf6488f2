"""F. Together, 81: many lives in a row leave descriptors, threads, processes, containers and memory as they were.

`benchmarks/soak.py` does the same for hundreds of cycles, by hand.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CYCLES = 8
GROWN_KIB = 2048
"""What the allocator may keep of that many cycles; 8 leaked connections alone would have more."""


@pytest.fixture
def soak() -> ModuleType:
    """The script, which is no module of a package."""
    path = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    spec = importlib.util.spec_from_file_location("soak", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("no_reused_sandboxes", "untouched")
async def test_81_start_and_stop_cycles_leave_everything_flat(kind, soak):
    # Earlier tests of this process may have left a child: the server that forks commands for the tests.
    children = soak.figures(kind.engine)["children"]
    # A leak makes each row of cycles larger. The allocator keeps a few MiB once, for what a busy machine has piled up.
    grown = GROWN_KIB
    for _ in range(3):
        before, after = await soak.soak(kind.engine, kind.mode, CYCLES, warm_up=3)
        grown = after.pop("resident KiB") - before.pop("resident KiB")
        assert after == before
        assert (after["children"], after["control groups"], after["containers"]) == (children, 0, 0)
        if grown < GROWN_KIB:
            break
    assert grown < GROWN_KIB


def test_81_the_figures_see_what_is_left(soak: ModuleType) -> None:
    before = soak.figures("bubblewrap")
    with open(__file__, "rb"):
        assert soak.figures("bubblewrap")["descriptors"] == before["descriptors"] + 1
