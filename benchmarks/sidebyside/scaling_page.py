"""The measured part of docs/scaling.md: tables, the model of cost, and what it predicts."""

import statistics

BEGIN, END = "<!-- measured: written by python benchmarks/scaling.py -->", "<!-- /measured -->"
SIZES = (1_000, 100_000)
# An agent whose model takes this long runs a block as often.
PACE_S = 10.0
LIFE_S = 3600.0
MACHINE = {"processors": 64, "memory": 256e9}


def section(figures):
    """Return the measured part of the page."""
    parts = [f"Measured on {figures['machine']}."]
    if figures["note"]:
        parts.append(figures["note"])
    parts += ["### Tasks a minute and memory\n\n" + _batches(figures["batches"])]
    if figures["engines"]:
        parts.append(
            "### Several engines on this machine\n\n"
            f"{_batches(figures['engines'], engines=True)}\n\n{_about_engines(figures['engines'])}"
        )
    parts.append("### Sandboxes that are alive\n\n" + _alive(figures["alive"]))
    if model := costs(figures["alive"]):
        parts += [
            "### Cost model\n\n" + _model(model) + _driver(figures["batches"]),
            "### Predictions\n\n" + _predictions(model),
        ]
    parts += [f"Not measured: {name}: {reason}" for name, reason in figures["absent"].items()]
    return "\n\n".join(parts) + "\n"


def _head(*names):
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def _batches(batches, *, engines=False):
    first = ["engines"] if engines else []
    lines = _head(
        *first, "at once", "tasks", "tasks a minute", "processor s a task", "median s of a task", "memory at the peak"
    )
    for found in batches:
        tasks = found["tasks"]
        cells = [f"{found['hosts']}"] if engines else []
        cells += [
            f"{found['concurrency']}",
            f"{len(tasks)}",
            f"{_tasks_per_minute(found):,.0f}",
            f"{found['processor']['machine'] / len(tasks):.3f}",
            f"{statistics.median(task['seconds'] for task in tasks):.2f}",
            f"{found['memory'] / 1e6:,.0f} MB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _tasks_per_minute(found):
    return 60 * len(found["tasks"]) / found["seconds"]


def _about_engines(engines):
    """Return what several engines on one machine show."""
    most = max(found["concurrency"] for found in engines)
    some = {found["hosts"]: found for found in engines if found["concurrency"] == most}
    rates = ", ".join(f"{_tasks_per_minute(found):,.0f} with {hosts}" for hosts, found in sorted(some.items()))
    changes = ", ".join(
        f"{100 * (found['processor']['machine'] / len(found['tasks']) / _per_task(some[1]) - 1):+.0f} % with {hosts}"
        for hosts, found in sorted(some.items())
        if hosts > 1 and 1 in some
    )
    return (
        f"Tasks a minute at {most} at once: {rates}.\n"
        "All engines share this machine's processors, so no gain can be seen here. The table shows what placement and health\n"
        f"checks cost in processor time a task ({changes or 'not measured'}).\n"
        "Engines on machines of their own add up, until the driver is busy."
    )


def _per_task(found, part="machine"):
    return found["processor"][part] / len(found["tasks"])


def _driver(batches):
    """Return what one driver can do, from the measurement with the highest concurrency."""
    if not batches:
        return ""
    found = max(batches, key=lambda each: each["concurrency"])
    client, rate = _per_task(found, "client"), _tasks_per_minute(found)
    most = 60 / client
    return (
        f"\n- The driver's own process uses {client:.3f} s of processor time a task, on one processor: at most\n"
        f"  {most:,.0f} such tasks a minute. {most / rate:.1f} engines, each on a machine like this one, would do as many:\n"
        f"  tasks a minute = engines × {rate:,.0f}, up to that limit. Beyond it, use several drivers or `--ray`."
    )


def _alive(alive):
    lines = _head(
        "sandboxes",
        "memory of the machine, each",
        "of the driver, each",
        "descriptors of the driver, each",
        "start: processor s, each",
        "stop, each",
        "block, each",
        "idle: use of one processor, each",
    )
    for found in alive:
        each = _each(found)
        lines.append(
            f"| {found['count']}, {found['sandbox']} | {each['memory'] / 1e6:.1f} MB | {each['driver'] / 1e6:.2f} MB | "
            f"{each['descriptors']:.1f} | {each['start']:.3f} | {each['stop']:.3f} | {1e3 * each['block']:.1f} ms | "
            f"{100 * each['idle']:.2f} % |"
        )
    return "\n".join(lines)


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


def _model(model):
    life, block = model["start"] + model["stop"], model["block"]
    return (
        f"- A task costs {life:.3f} s of processor time for its sandbox, and {1e3 * block:.1f} ms for each small block, with\n"
        f"  what engine and driver use. Tasks a minute = 60 × processors / ({life:.3f} + {block:.4f} × blocks).\n"
        f"- A sandbox that is alive takes {model['memory'] / 1e6:.1f} MB of its machine, with the engine's shim, "
        f"{model['driver'] / 1e6:.2f} MB\n  and {model['descriptors']:.1f} descriptors of the driver, "
        f"and {100 * model['idle']:.2f} % of a processor while nothing runs in it."
    )


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
        "machines": max(processors / MACHINE["processors"], memory / MACHINE["memory"]),
        "driver": sandboxes * model["driver"],
        "descriptors": sandboxes * model["descriptors"],
        "start_all_s": sandboxes * model["start"] / MACHINE["processors"],
    }


def _predictions(model):
    lines = [
        f"Each sandbox runs a small block every {PACE_S:g} s (an agent whose model takes that long) and lives an hour. A\n"
        f"machine is one with {MACHINE['processors']} processors and {MACHINE['memory'] / 1e9:.0f} GB.\n",
        *_head(
            "sandboxes",
            "memory",
            "processors",
            "machines",
            "driver: memory",
            "driver: descriptors",
            "starting all on one machine",
        ),
    ]
    for size in SIZES:
        found = predict(model, size)
        lines.append(
            f"| {size:,} | {found['memory'] / 1e9:,.0f} GB | {found['processors']:,.1f} | {found['machines']:,.2f} | "
            f"{found['driver'] / 1e9:,.2f} GB | {found['descriptors']:,.0f} | {found['start_all_s']:,.0f} s |"
        )
    return "\n".join(lines)
