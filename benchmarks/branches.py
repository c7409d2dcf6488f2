"""What a branch costs that is undone, in relation to a block: `python benchmarks/branches.py [--repeats N]`."""

import argparse
import statistics
import time
from collections.abc import Callable

from codeact_sandbox import Sandbox

CASES = (("empty", 0, 0), ("100 MB of variables", 100, 0), ("10 MB of files", 0, 10))


def median_ms(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call in milliseconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def measure(box: Sandbox, variables_mb: int, files_mb: int, repeats: int) -> str:
    """Return the cells of a row: a block, an empty branch, their ratio, checkpoint and rollback alone."""

    def branch() -> None:
        with box.branch():
            pass

    def memory() -> None:
        box.checkpoint()
        box.rollback()

    box.run(f"x = b'1' * ({variables_mb} * 2**20); open('data.bin', 'wb').write(os.urandom({files_mb} * 2**20))")
    block, whole, interpreter = (median_ms(work, repeats) for work in (lambda: box.run("1"), branch, memory))
    return f"{block:.1f} ms | {whole:.0f} ms | {whole / block:.0f}× | {interpreter:.1f} ms"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats: int = parser.parse_args().repeats
    print("| | block | branch, undone | ratio | its interpreter alone |\n|---|---|---|---|---|")
    for backend in ("docker", "bubblewrap"):
        for name, variables, files in CASES:
            with Sandbox(backend) as box:  # type: ignore[arg-type]
                box.run("import os")
                print(f"| {backend}, {name} | {measure(box, variables, files, repeats)} |")


if __name__ == "__main__":
    main()
