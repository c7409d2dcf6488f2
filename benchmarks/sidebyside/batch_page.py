"""The page of `batch.py`, from the figures of its last run and of those of the programs beside it."""

import json
import random
import statistics

from . import cells_page, paused_page
from .batch_variants import (
    AUTOGEN,
    ECHO,
    ECHO_FRESH,
    ISOLATION,
    OURS,
    OURS_BUBBLEWRAP,
    PEERS,
    REUSED,
    REUSED_BUBBLEWRAP,
    SANDBOX_USES,
    SMOLAGENTS,
    VARIANTS,
)
from .page import wrapped

BOOTSTRAPS = 2000
GROWTH_MB = 20
SETTLED = 500
HEAD = """# Benchmarks of batches

`python benchmarks/batch.py` writes this page{machine}.

{sessions} recorded sessions ({blocks} blocks) as agent runs, with a scripted model that answers at once.

- Ours: `run_batch` with `CodeActAgent` and a pool, rows and run logs included. Once with a new sandbox for each task, and once
  with sandboxes that are reset and used again (`sandbox_uses={uses}`).
- AutoGen: `CodeExecutorAgent` with a new executor for each task. With one executor for all, which is also measured, tasks see
  each other's files and processes. The command line executor keeps no variables, so its model writes the earlier blocks again.
  The agent reflects after each block.
- smolagents: `CodeAgent` with a new Docker executor for each task. It ends with one more block, which calls `final_answer`. Its
  scripted model waits {after_error_s:g} s after an error, which is about 1 % of a task: its kernel discards what is sent while it
  still handles the error, and the library does not wait for that. A block that is discarded nevertheless makes the attempt a
  failed one, which is done again. Its executor waits up to 60 s here for its gateway, not 10 s: 32 of them take longer to start.
- Bare echo: the blocks' bytes, sent to `cat` in a container and back over its attached stream. No code runs.

The outputs of all blocks are compared with the recording. Tasks with a wrong output are discarded with all that ran beside them,
and listed below; a variant that gives another wrong output has no time. All variants in Docker run the same image's Python, and
all may use every processor. Each variant runs random samples of the sessions, and the variants follow each other in random order.
Tasks a minute are those of all samples together; the 95 % interval is a bootstrap over the tasks.

Processor time is that of the machine (client, engine, containers, kernel), in seconds for each task. Its parts: the containers'
control groups; the client's process and its children; the engine's lasting processes (dockerd, containerd); the rest: shims and
runc, which start and end containers, with the kernel's work for namespaces, mounts and control groups, and what bubblewrap's
sandboxes use, which are in no control group of Docker.

{isolation}
"""
AFTER_ERROR_S = 0.25
OWN = (OURS, REUSED, OURS_BUBBLEWRAP, REUSED_BUBBLEWRAP)


def _load(folder, name):
    path = folder / name
    return json.loads(path.read_text()) if path.exists() else None


def page(folder):
    """Return the page.

    Args:
        folder: Where the programs keep their figures.
    """
    figures, parts = _load(folder, "batch.json"), []
    many = [json.loads(path.read_text()) for path in sorted(folder.glob("batch-many-*.json"))]
    paused, some_cells = _load(folder, "paused.json"), _load(folder, "cells.json")
    machine = f": {figures['machine']}; {_versions(figures)}" if figures else ""
    head = HEAD.format(
        machine=machine,
        sessions=figures["sessions"] if figures else "300",
        blocks=figures["blocks"] if figures else "about 630",
        uses=SANDBOX_USES,
        after_error_s=AFTER_ERROR_S,
        isolation=isolation(),
    )
    parts.append(head)
    if figures:
        if figures["note"]:
            parts.append(figures["note"] + "\n")
        parts += [
            "## Targets\n",
            targets(figures, many, paused, some_cells),
            "## Tasks a minute and processor time\n",
            rates(figures),
        ]
        parts += why(figures)
        parts += [f"Not measured: {name}: {reason}\n" for name, reason in figures["absent"].items()]
        parts += [f"Discarded because of a wrong output: {text}\n" for text in figures["discarded"]]
        busy = ", ".join(f"{100 * share:.0f} % {when}" for when, share in figures["background"].items())
        parts.append(f"Use of one processor by other processes: {busy} the run.\n")
    if paused:
        parts += ["## Blocks after a pause\n", paused_page.section(paused)]
    if some_cells:
        parts += ["## Cells of the other page that missed their aim\n", cells_page.section(some_cells)]
    if many:
        parts += ["## Many tasks\n", many_table(many)]
    return "\n".join(parts)


def isolation():
    """Return the table of what each variant isolates."""
    lines = ["| | what it isolates |", "|---|---|"]
    lines += [f"| {variant} | {ISOLATION[variant]} |" for variant in VARIANTS]
    return "\n".join(lines)


def _versions(figures):
    return ", ".join(f"{name} {version}" for name, version in figures["versions"].items())


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
    """Return the tables of tasks a minute, one for each concurrency."""
    lines = []
    for concurrency, variants in sorted(figures["chunks"].items(), key=lambda item: int(item[0])):
        lines += [
            f"### {concurrency} at once\n" if concurrency != "1" else "### One after the other\n",
            "| | tasks | tasks a minute (95 %) | times as many as AutoGen, command line | processor s a task | containers "
            "| client | engine | rest | failed attempts |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        base = variants.get(AUTOGEN)
        for variant in VARIANTS:
            if not (chunks := variants.get(variant)):
                continue
            middle, low, high = rate(chunks)
            against = "-" if variant == AUTOGEN or not base else _times(ratio(chunks, base))
            used = processor(chunks)
            count, tasks = len(_seconds(chunks)), [task for chunk in chunks for task in chunk["tasks"]]
            failed = f"{sum(len(task['errors']) for task in tasks)}"
            if len(tasks) > count:
                failed += f" ({len(tasks) - count} tasks not done)"
            lines.append(
                f"| {variant} | {count} | {middle:,.1f} ({low:,.1f} to {high:,.1f}) | {against} | {used['machine']:.3f} | "
                f"{used['containers']:.3f} | {used['client']:.3f} | {used['engine']:.3f} | {used['rest']:.3f} | {failed} |"
            )
        lines.append("")
    return "\n".join(lines)


def _times(found):
    return f"**{found[0]:.3g}×** ({found[1]:.3g} to {found[2]:.3g})"


def targets(figures, many, paused=None, some_cells=None):
    """Return the table of targets."""
    rows = ["| target | measured (95 %) | |", "|---|---|---|"]
    eight, wide = figures["chunks"].get("8", {}), figures["chunks"].get("32", {})
    for own in OWN:
        for peer, least in ((AUTOGEN, 15), (SMOLAGENTS, 8)):
            if eight.get(own) and eight.get(peer):
                found = ratio(eight[own], eight[peer])
                rows.append(
                    _row(f"{own}, at 8: ≥ {least}× the tasks a minute of {peer}", _times(found), found[0] >= least)
                )
    peers = {variant: processor(eight[variant])["machine"] for variant in PEERS if eight.get(variant)}
    for own in OWN:
        if eight.get(own) and peers:
            best, used = min(peers, key=peers.__getitem__), processor(eight[own])["machine"]
            share = used / peers[best]
            text = f"**{share:.2f}** ({used:.3f} s, {best}: {peers[best]:.3f} s)"
            rows.append(_row(f"{own}, at 8: processor time a task ≤ 1/5 of the best other", text, share <= 0.2))
    for own in OWN:
        for echo in (ECHO, ECHO_FRESH):
            if wide.get(own) and wide.get(echo):
                found = ratio(wide[own], wide[echo])
                met = found[0] >= 0.5 if echo == ECHO else None
                target = "≥ 0.5×" if echo == ECHO else "beside"
                rows.append(_row(f"{own}, at 32: tasks a minute {target} {echo}", _times(found), met))
    rows += [_row(*row) for row in paused_page.targets(paused or {"blocks": {}})]
    rows += [_row(*row) for row in cells_page.targets(some_cells or {"seconds": {}})]
    for found in many:
        grown = growth(found)
        kind = found["sandbox"] + (", reused" if found.get("sandbox_uses", 1) > 1 else "")
        rows.append(
            _row(
                f"{found['tasks']:,} tasks, {kind}: resident memory ± {GROWTH_MB} MB after the first {SETTLED}",
                f"**{grown['low_mb']:+.1f} to {grown['high_mb']:+.1f} MB**",
                max(grown["high_mb"], -grown["low_mb"]) <= GROWTH_MB,
            )
        )
        rows.append(
            _row(
                f"{found['tasks']:,} tasks, {kind}: no more descriptors at the end than while it ran",
                f"**{grown['descriptors_first']} after {SETTLED}, {grown['descriptors_last']} at the end**",
                grown["descriptors_last"] <= grown["descriptors_first"] + found["concurrency"],
            )
        )
    return "\n".join(rows) + "\n"


def why(figures):
    """Return what the processor time of a task consists of, from the variants at 32; nothing without them."""
    found = {variant: chunks for variant, chunks in figures["chunks"].get("32", {}).items() if chunks}
    if not {OURS, ECHO, ECHO_FRESH} <= found.keys():
        return []
    used = {variant: processor(chunks) for variant, chunks in found.items()}
    ours, echo, fresh = used[OURS], used[ECHO], used[ECHO_FRESH]
    half = rate(found[ECHO])[0] / 2
    blocks = figures["blocks"] / figures["sessions"]
    processors = int(figures["machine"].split()[0])
    idle_ms = echo["machine"] * 1e3
    most, budget = rate(found[ECHO_FRESH])[0], processors * 60 / half * 1e3
    text = f"""### Where the time goes

At 32 at once all processors are busy, so tasks a minute follow from the processor time of a task, {ours["machine"]:.3f} s with a
container for each.

- A container for each task that runs only `cat`, with nothing but the bytes echoed, takes {fresh["machine"]:.3f} s:
  {most:,.0f} tasks a minute are the most that this engine can isolate from each other on this machine. The engine's processes use
  {fresh["engine"]:.3f} s of it; shim, runc and the kernel, which makes and removes namespaces, mounts and control groups, use
  {fresh["rest"]:.3f} s.
- Ours uses {ours["containers"]:.3f} s in the container: it starts Python, loads the runner's modules, and runs
  {blocks:.1f} blocks with a checkpoint each.
- The driver uses {ours["client"]:.3f} s for the agent, its run log, the row and the pool; the engine's processes use
  {ours["engine"]:.3f} s, and shim, runc and the kernel {ours["rest"]:.3f} s.
{_reuse(used)}- The echo over streams that are attached before starts no container and runs no code: {idle_ms:.2f} ms a task.
  Half of its rate would be {half:,.0f} tasks a minute, each started, run and logged in {budget:.2f} ms of processor time.
  That is less than starting any process takes.
"""
    return [text]


def _reuse(used):
    lines = ""
    for own, reused in ((OURS, REUSED), (OURS_BUBBLEWRAP, REUSED_BUBBLEWRAP)):
        if own in used and reused in used:
            parts = ", ".join(
                f"{name} {used[reused][name]:.3f} s" for name in ("containers", "client", "engine", "rest")
            )
            lines += wrapped(
                f"- {reused}: {used[reused]['machine']:.3f} s a task in place of {used[own]['machine']:.3f} s "
                f"({parts}). It saves the start and the end of a sandbox, and pays for the reset and its checks."
            )
            lines += "\n"
    return lines


def _row(target, measured, met):
    return f"| {target} | {measured} | {'' if met is None else 'reached' if met else '**missed**'} |"


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


def many_table(many):
    """Return the memory and descriptors of the driver while it runs many tasks."""
    lines = [
        "The process of `run_batch`, with rows and run logs (`python benchmarks/batch_many.py`), on a machine with other work,",
        "so tasks a minute say nothing. *malloc* is what the C library has given out, and what it keeps although it is free;",
        "Python's own objects come on top, and are counted by number.\n",
        "| | tasks done | tasks a minute | resident MB | descriptors | threads | malloc: in use | kept free | Python's blocks |",
        "|---" * 9 + "|",
    ]
    for found in many:
        name = f"{found['sandbox']}, {found['concurrency']} at once"
        if uses := found.get("sandbox_uses", 1) - 1:
            name += f", sandboxes reused (`sandbox_uses={uses + 1}`)"
        for sample in _shown(found["samples"]):
            pace = 60 * sample["done"] / sample["seconds"]
            malloc = [f"{sample[key] / 1e6:.1f} MB" if key in sample else "-" for key in ("malloc_used", "malloc_free")]
            blocks = f"{sample['python_blocks']:,}" if "python_blocks" in sample else "-"
            lines.append(
                f"| {name} | {sample['done']:,} | {pace:,.0f} | {sample['rss'] / 1e6:.1f} | {sample['descriptors']} | "
                f"{sample['threads']} | {malloc[0]} | {malloc[1]} | {blocks} |"
            )
    return "\n".join(lines) + "\n"


def _shown(samples):
    """Return the samples at the first 500 tasks, at each tenth of all, and at the end."""
    last = samples[-1]["done"]
    selected = sorted({min(SETTLED, last), *(last * tenth // 10 for tenth in range(1, 11))})
    nearest = {min(samples, key=lambda sample: abs(sample["done"] - done))["done"] for done in selected}
    return [sample for sample in samples if sample["done"] in nearest]
