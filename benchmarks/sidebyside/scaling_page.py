"""The measured part of docs/scaling.md: tables, the model of cost, and what it predicts."""

import statistics

from .page import table, wrapped

SIZES = (1_000, 100_000)
# An agent whose model takes this long runs a block as often.
PACE_S = 10.0
LIFE_S = 3600.0


def section(figures):
    """Return the measured part of the page."""
    parts = [f"Measured on {figures['day']} on {figures['machine']}, with one engine."]
    if figures["note"]:
        parts.append(figures["note"])
    parts += [_batches(figures["batches"]), _alive(figures["alive"])]
    if model := costs(figures["alive"]):
        parts.append(f"{_model(model, figures['batches'])}\n{_predictions(model)}")
    parts += [f"Not measured: {name}: {reason}" for name, reason in figures["absent"].items()]
    return "\n\n".join(parts)


def _batches(batches):
    rows = [
        [
            f"{found['concurrency']}",
            f"{_tasks_per_minute(found):,.0f}",
            f"{_per_task(found):.3f}",
            f"{statistics.median(task['seconds'] for task in found['tasks']):.2f}",
            f"{found['memory'] / 1e6:,.0f} MB",
        ]
        for found in batches
    ]
    return table(["at once", "tasks a minute", "processor s a task", "median s of a task", "memory at the peak"], rows)


def _tasks_per_minute(found):
    return 60 * len(found["tasks"]) / found["seconds"]


def _per_task(found, part="machine"):
    return found["processor"][part] / len(found["tasks"])


def _alive(alive):
    """Return a table of what a sandbox costs, from the measurement with the most of each kind."""
    largest = {found["sandbox"]: found for found in sorted(alive, key=lambda each: each["count"])}
    rows = []
    for found in largest.values():
        each = _each(found)
        rows.append(
            [
                f"{found['sandbox']}, {found['count']} alive",
                f"{each['memory'] / 1e6:.1f} MB",
                f"{each['driver'] / 1e6:.2f} MB",
                f"{each['descriptors']:.1f}",
                f"{each['start']:.3f} s",
                f"{each['stop']:.3f} s",
                f"{1e3 * each['block']:.1f} ms",
                f"{100 * each['idle']:.2f} %",
            ]
        )
    head = ["each sandbox", "memory of the machine", "of the driver", "descriptors of the driver"]
    return table([*head, "start (processor)", "stop", "block", "idle, of one processor"], rows)


def _each(found):
    count, idle = found["count"], found["idle"]["processor"]["machine"]
    return {
        "memory": found["memory"] / count,
        "driver": found["driver"]["rss"] / count,
        "descriptors": found["driver"]["descriptors"] / count,
        "start": found["start"]["processor"]["machine"] / count,
        "stop": found["stop"]["processor"]["machine"] / count,
        "block": found["blocks"]["processor"]["machine"] / found["blocks"]["blocks"],
        "idle": max(0.0, (idle - found["background"]["processor"]["machine"]) / found["idle"]["seconds"] / count),
    }


def costs(alive):
    """Return what one sandbox costs: that of the measurement with the most sandboxes in Docker; None without one."""
    docker = [found for found in alive if found["sandbox"] == "docker"]
    return _each(max(docker, key=lambda found: found["count"])) if docker else None


def _model(model, batches):
    """Return what follows for tasks a minute, for engines and for one driver."""
    life, block = model["start"] + model["stop"], model["block"]
    text = f"- On one machine: tasks a minute = 60 × processors / ({life:.3f} + {block:.4f} × blocks), with a container for each."
    if batches:
        found = max(batches, key=lambda each: each["concurrency"])
        client, rate = _per_task(found, "client"), _tasks_per_minute(found)
        text += (
            f"\n- One driver uses {client:.3f} s of one processor for a task: at most {60 / client:,.0f} tasks a minute, those "
            f"of {60 / client / rate:.1f} engines on machines like this one. Beyond it, use several drivers or Ray."
        )
    return "\n".join(map(wrapped, text.splitlines()))


def predict(model, sandboxes):
    """Return what so many sandboxes need, each with one block every `PACE_S` seconds, and each replaced once an hour."""
    per_second = sandboxes / PACE_S
    starts_per_second = sandboxes / LIFE_S
    processors = (
        per_second * model["block"]
        + starts_per_second * (model["start"] + model["stop"])
        + sandboxes * max(0.0, model["idle"])
    )
    memory = sandboxes * model["memory"]
    return {
        "memory": memory,
        "processors": processors,
        "driver": sandboxes * model["driver"],
        "descriptors": sandboxes * model["descriptors"],
    }


def _predictions(model):
    lines = []
    for size in SIZES:
        found = predict(model, size)
        lines.append(
            f"- Predicted, not tried: {size:,} sandboxes with a small block every {PACE_S:g} s, each for an hour, need "
            f"{found['memory'] / 1e9:,.0f} GB and {found['processors']:,.1f} processors, and of the driver "
            f"{found['driver'] / 1e9:,.2f} GB and {found['descriptors']:,.0f} descriptors."
        )
    return "\n".join(map(wrapped, lines))
