"""F. Together, 81: many lives in a row leave descriptors, threads, processes, containers and memory as they were."""

import os
from pathlib import Path

import pytest

from tests.sandbox.sandboxes import out

from .oracles import leftovers
from .subject import Kind

WARM_UP, CYCLES = 3, 8
GROWN_KIB = 2048
"""What the allocator may keep of that many cycles; 8 leaked connections alone would have more."""


def figures() -> dict[str, int]:
    """What could grow, by name."""
    return {name: len(found) for name, found in leftovers().items()}


def resident_kib() -> int:
    """This process's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


async def live(kind: Kind, cycles: int) -> None:
    """Have some sandboxes, one after the other."""
    for _ in range(cycles):
        async with kind.make() as executor:
            assert await out(executor, "print(6 * 7)") == "42\n"


# Case 81.
@pytest.mark.usefixtures("untouched")
async def test_start_and_stop_cycles_leave_everything_flat(kind: Kind) -> None:
    # A leak makes each row of cycles larger. The allocator keeps a few MiB once, for what a busy machine has piled up.
    grown = GROWN_KIB
    for _ in range(3):
        await live(kind, WARM_UP)
        before, resident = figures(), resident_kib()
        await live(kind, CYCLES)
        grown = resident_kib() - resident
        assert figures() == before
        assert (before["control groups"], before["containers"]) == (0, 0)
        if grown < GROWN_KIB:
            break
    assert grown < GROWN_KIB
