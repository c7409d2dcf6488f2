"""The parts of docs/benchmarks.md that `batch.py` writes, from the figures of its last run and of the programs beside it."""

import json
import random
import statistics

from . import paused_page
from .batch_variants import (
    AUTOGEN,
    ECHO,
    OURS,
    OURS_BUBBLEWRAP,
    PEERS,
    SMOLAGENTS,
    VARIANTS,
)
from .page import judged, number, result, table, wrapped

BOOTSTRAPS = 2000
GROWTH_MB = 20
SETTLED = 500
OWN = (OURS, OURS_BUBBLEWRAP)


def _load(folder, name):
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def parts(folder):
    """Return the parts of the page by name.

    Args:
        folder: Where the programs keep their figures.
    """
    figures, paused = json.loads((folder / "batch.json").read_text()), _load(folder, "paused.json")
    many = [json.loads(path.read_text()) for path in sorted(folder.glob("batch-many-*.json"))]
    details = [targets(figures), "\n".join(memory(many)), missing(figures)]
    if paused:
        details.append(f"### Blocks after a pause\n\n{paused_page.section(paused)}")
    return {"batches": rates(figures), "more-batches": "\n\n".join(text for text in details if text)}


def rate(chunks, seed=0):
    """Return tasks a minute with the 95 % interval of a bootstrap over tasks."""
    seconds = _seconds(chunks)
    found = 60 * len(seconds) / sum(chunk["seconds"] for chunk in chunks)
    chance, mean = random.Random(seed), statistics.fmean(seconds)
    drawn = sorted(found * mean / statistics.fmean(chance.choices(seconds, k=len(seconds))) for _ in range(BOOTSTRAPS))
    return found, drawn[int(0.025 * BOOTSTRAPS)], drawn[int(0.975 * BOOTSTRAPS)]


def _seconds(chunks):
    # A task that failed in all attempts is not done; the time that it took stays in that of its chunk.
    return [task["seconds"] for chunk in chunks for task in chunk["tasks"] if not task["failed"]]


def ratio(chunks, base, seed=0):
    """Return how many times as many tasks a minute as the base, with the 95 % interval of a bootstrap over tasks."""
    found = rate(chunks)[0] / rate(base)[0]
    chance = random.Random(seed)
    ours, theirs = _seconds(chunks), _seconds(base)
    means = statistics.fmean(ours), statistics.fmean(theirs)

    def drawn():
        drawn_ours = statistics.fmean(chance.choices(ours, k=len(ours))) / means[0]
        return found / drawn_ours * statistics.fmean(chance.choices(theirs, k=len(theirs))) / means[1]

    many = sorted(drawn() for _ in range(BOOTSTRAPS))
    return found, many[int(0.025 * BOOTSTRAPS)], many[int(0.975 * BOOTSTRAPS)]


def processor(chunks):
    """Return the seconds of processor time for each task: all, containers, client, engine, and the rest."""
    tasks = len(_seconds(chunks))
    sums = {
        name: sum(chunk["processor"][name] or 0.0 for chunk in chunks) / tasks
        for name in ("machine", "containers", "client", "engine")
    }
    return {**sums, "rest": sums["machine"] - sums["containers"] - sums["client"] - sums["engine"]}


def rates(figures):
    """Return the table of tasks a minute."""
    columns = {name: figures["chunks"].get(name, {}) for name in ("1", "8", "32")}
    rows = []
    for variant in VARIANTS:
        cells = []
        for variants in columns.values():
            chunks, base = variants.get(variant), variants.get(AUTOGEN)
            text = f"{number(rate(chunks)[0])}" if chunks else "-"
            if chunks and base and variant != AUTOGEN:
                text += f" ({number(ratio(chunks, base)[0])}×)"
            cells.append(text)
        used = f"{processor(columns['8'][variant])['machine']:.3f} s" if columns["8"].get(variant) else "-"
        if set(cells) != {"-"}:
            rows.append([variant, *cells, used])
    head = [
        "tasks a minute (times AutoGen's)",
        *(f"{name} at once" for name in columns),
        "processor time a task, 8 at once",
    ]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    about = (
        f"{figures['sessions']} recorded sessions ({figures['blocks']} blocks) as agent runs, with a model that answers at once, "
        f"measured on {figures['day']} in one run on one machine ({figures['machine']}; {versions})."
    )
    return f"{table(head, rows)}\n\n{wrapped(about)}" + (f" {figures['note']}" if figures["note"] else "")


def _judged(found, least):
    return result(found[0] >= least, judged(found, least))


def targets(figures):
    """Return the table of targets."""
    eight, wide = figures["chunks"].get("8", {}), figures["chunks"].get("32", {})
    peers = {variant: processor(eight[variant])["machine"] for variant in PEERS if eight.get(variant)}
    rows = []
    for own in OWN:
        row = [own]
        for chunks, base, least in ((eight, AUTOGEN, 15), (eight, SMOLAGENTS, 8), (wide, ECHO, 0.5)):
            measured = chunks.get(own) and chunks.get(base)
            row.append(_judged(ratio(chunks[own], chunks[base]), least) if measured else "-")
        share = processor(eight[own])["machine"] / min(peers.values()) if eight.get(own) and peers else None
        row.append("-" if share is None else result(share <= 0.2, f"{share:.2f}×"))
        rows.append(row)
    head = ["target", f"8 at once: ≥ 15× {AUTOGEN}", f"8 at once: ≥ 8× {SMOLAGENTS}", f"32 at once: ≥ 0.5× {ECHO}"]
    return table([*head, "8 at once: ≤ 0.2× the processor time of the best other"], rows)


def missing(figures):
    """Return what was not measured, discarded or repeated."""
    lines = [f"- Not measured: {name}: {reason}." for name, reason in figures["absent"].items()]
    lines += [f"- Discarded because of a wrong output: {text}." for text in figures["discarded"]]
    for variant in VARIANTS:
        tasks = [
            task
            for variants in figures["chunks"].values()
            for chunk in variants.get(variant, [])
            for task in chunk["tasks"]
        ]
        failed, undone = sum(len(task["errors"]) for task in tasks), sum(task["failed"] for task in tasks)
        if failed:
            lines.append(f"- {variant}: failed attempts {failed}, tasks not done {undone}.")
    busy = ", ".join(f"{100 * share:.0f} % {when}" for when, share in figures["background"].items())
    return "\n".join(map(wrapped, [*lines, f"- Use of one processor by other processes: {busy} the run."]))


def growth(found):
    """Return how resident memory and descriptors have changed since the first 500 tasks."""
    settled = [sample for sample in found["samples"] if sample["done"] >= min(SETTLED, found["tasks"] // 2)]
    first = settled[0]
    changes = [(sample["rss"] - first["rss"]) / 1e6 for sample in settled]
    return {
        "low_mb": min(changes),
        "high_mb": max(changes),
        "descriptors_first": first["descriptors"],
        "descriptors_last": settled[-1]["descriptors"],
    }


def memory(many):
    """Return a line for each batch of very many tasks: what its process has kept."""
    lines = []
    for found in many:
        grown, kind = growth(found), found["sandbox"]
        kept = max(grown["high_mb"], -grown["low_mb"]) <= GROWTH_MB
        closed = grown["descriptors_last"] <= grown["descriptors_first"] + found["concurrency"]
        memory = f"{grown['low_mb']:+.1f} to {grown['high_mb']:+.1f} MB"
        descriptors = f"{grown['descriptors_first']} then, {grown['descriptors_last']} at the end"
        lines.append(
            f"- {found['tasks']:,} tasks, {kind}: memory of the driver after the first {SETTLED} (± {GROWTH_MB} MB) "
            f"{result(kept, memory)}; descriptors (no more) {result(closed, descriptors)}."
        )
    return [wrapped(line) for line in lines]
