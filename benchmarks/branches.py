"""What a branch costs that is undone, in relation to a block: `python benchmarks/branches.py [--repeats N] [--in-a-row N]`.

`--in-a-row 1000` instead makes so many branches of one session, and shows what has grown.
"""

import argparse
import os
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


STATE = """
import os
names = [each for each in os.listdir('/proc') if each.isdigit()]
memory = int(open('/proc/self/statm').read().split()[1]) * 4
print(f"{len(names)} processes, {len(os.listdir('/proc/self/fd'))} descriptors, {memory:,} KiB in the session")
"""


def state_of(box: Sandbox) -> str:
    """Return what this process and the sandbox have of what could grow."""
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * 4
    own = f"{len(os.listdir('/proc/self/fd'))} descriptors, {memory:,} KiB"
    return f"host: {own}; sandbox: {box.run(STATE).output.strip()}"


def in_a_row(backend: str, count: int) -> None:
    """Make many branches of one session, and print what there is before and after them."""
    with Sandbox(backend) as box:  # type: ignore[arg-type]
        box.run("x = 1")
        print(f"{backend}, before: {state_of(box)}")
        began = time.perf_counter()
        for _ in range(count):
            with box.branch() as branch:
                branch.run("x += 1; open('file', 'w').write('x' * 1000)")
        each = (time.perf_counter() - began) / count * 1000
        print(f"{backend}, after {count:,} branches of {each:.0f} ms: {state_of(box)}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--in-a-row", type=int, default=0)
    arguments = parser.parse_args()
    repeats: int = arguments.repeats
    if arguments.in_a_row:
        for backend in ("docker", "bubblewrap"):
            in_a_row(backend, arguments.in_a_row)
        return
    print("| | block | branch, undone | ratio | its interpreter alone |\n|---|---|---|---|---|")
    for backend in ("docker", "bubblewrap"):
        for name, variables, files in CASES:
            with Sandbox(backend) as box:  # type: ignore[arg-type]
                box.run("import os")
                print(f"| {backend}, {name} | {measure(box, variables, files, repeats)} |")


if __name__ == "__main__":
    main()
