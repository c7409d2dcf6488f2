"""Whether notebooks' cells do in a session what they do in a real IPython kernel, in the same environment.

    python benchmarks/notebooks.py [NAME …] [--sandbox docker|bubblewrap] [--package NAME …] [--python PATH] [--keep FOLDER]

Each notebook of `../shared/data/notebooks` runs twice in an IPython kernel and once in session mode, in a fresh copy of its
folder each time. The kernel runs inside a sandbox with the same options, so it has the same interpreter, packages, limits and
network. With Docker that is the default image with `ipykernel` added; with bubblewrap, `--python` names an interpreter that has
it. What differs between the two runs of the kernel (random numbers, addresses, times) does not count. Prints the agreement and
the cells that differ, by cause. `--keep` stores what the kernel did, so that the next run does not repeat it; `--expect` writes
what tests/benchmarks/test_notebooks.py compares with.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

from notebook_cells import agreement, differences, stable_result
from notebook_runs import Settings, in_kernel, in_session

SHARED = Path(__file__).parents[1] / "../shared/data/notebooks/notebooks.tar.gz"


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "all")
        with tarfile.open(arguments.data) as tar:
            tar.extractall(root, filter="data")
        settings = Settings(
            arguments.sandbox, tuple(arguments.package or ()), arguments.python, arguments.timeout, arguments.memory
        )
        chosen = [path for path in sorted(root.rglob("*.ipynb")) if not arguments.name or path.stem in arguments.name]
        if not chosen:
            sys.exit(f"There is no notebook of these names in {arguments.data}")
        compared = {}
        try:
            asyncio.run(run_all(chosen, root, settings, arguments, compared))
        except KeyboardInterrupt:
            print("interrupted: only the notebooks so far are reported", file=sys.stderr)
        if arguments.expect:
            arguments.expect.write_text(expectations(chosen, root, arguments.keep))
    text = report(dict(sorted(compared.items())))
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="notebooks, such as ch02 (default: all)")
    parser.add_argument("--data", type=Path, default=SHARED, help="tar.gz of folders with notebooks")
    parser.add_argument("--sandbox", choices=["docker", "bubblewrap"], default="docker")
    parser.add_argument(
        "--package", action="append", help="added to the image, instead of ipykernel: a name or a wheel"
    )
    parser.add_argument("--python", help="bubblewrap's interpreter; it needs ipykernel")
    parser.add_argument("--timeout", type=float, default=20, help="seconds for one cell")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks at the same time")
    parser.add_argument("--keep", type=Path, help="folder for what the kernel did")
    parser.add_argument(
        "--expect", type=Path, help="file for the kernel's stable results, without images; needs --keep"
    )
    parser.add_argument("--write", type=Path, help="file for what is printed")
    arguments = parser.parse_args()
    if arguments.expect and not arguments.keep:
        parser.error("--expect needs --keep")
    return arguments


async def run_all(chosen, root, settings, arguments, done):
    """Compare the notebooks; put each one's comparison into `done` under its name."""
    slots = asyncio.Semaphore(arguments.jobs)

    async def one(path):
        async with slots:
            name = str(path.relative_to(root))
            try:
                done[name] = await compare_one(path, root, settings, arguments.keep)
            except Exception as error:  # noqa: BLE001 - one notebook must not end the others
                print(f"{name}: not compared: {error!r}", file=sys.stderr)
            else:
                print(f"{name}: {len(done[name])} cells", file=sys.stderr)

    await asyncio.gather(*map(one, chosen))


async def compare_one(path, root, settings, keep):
    cells = read_cells(path)
    known = keep / f"{path.stem}.json" if keep else None
    if known and known.is_file():
        references = json.loads(known.read_text())
    else:
        references = [await with_copy(root, path, in_kernel, cells, settings) for _ in range(2)]
        if known:
            keep.mkdir(parents=True, exist_ok=True)
            known.write_text(json.dumps(references))
    ours = await with_copy(root, path, in_session, cells, settings)
    return differences(cells, *references, ours)


async def with_copy(root, path, run, cells, settings):
    """Run the cells in a fresh copy of the notebook's folder."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "work")
        await asyncio.to_thread(shutil.copytree, path.parent, copy)
        return await run(cells, copy, settings)


def read_cells(path):
    """Return the code of a notebook's cells that have any."""
    cells = json.loads(path.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [text for text in texts if text.strip()]


def expectations(chosen, root, keep):
    """Return what the kernel did, as JSON of the notebooks' names."""
    stable = {}
    for path in chosen:
        first, second = json.loads((keep / f"{path.stem}.json").read_text())
        stable[str(path.relative_to(root))] = [stable_result(*both) for both in zip(first, second, strict=True)]
    return json.dumps(stable, indent=1) + "\n"


def report(compared):
    """Return the agreement and the differing cells, the most frequent cause first."""
    cells = [cell for found in compared.values() for cell in found]
    lines = [f"{len(compared)} notebooks, {len(cells)} cells", "", *agreement(cells), ""]
    causes = defaultdict(list)
    for name, found in compared.items():
        for cell in found:
            for cause, detail in cell.causes:
                causes[cause].append(f"  {name} cell {cell.number}: {detail}\n      {cell.code.strip()[:300]!r}")
    for cause, entries in sorted(causes.items(), key=lambda each: -len(each[1])):
        lines += [f"{len(entries)} × {cause}", *entries, ""]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
