"""The table of solved tasks, and how two libraries compare on the same tasks."""

import random


def table(rows):
    """Return the table of the page."""
    lines = [
        "| | right answer | right value in an output | tokens read | written | seconds | exceptions | hung |",
        "|---|" + "---:|" * 7,
    ]
    for name in dict.fromkeys(row["library"] for row in rows):
        own = [row for row in rows if row["library"] == name]
        count = len(own)
        verdicts = [row["verdict"] for row in own]
        cells = [
            f"{verdicts.count('right')} of {count}",
            f"{sum(row['seen'] for row in own)}",
            *(f"{sum(row[kind] for row in own) / count:,.0f}" for kind in ("prompt_tokens", "completion_tokens")),
            f"{sum(row['seconds'] for row in own) / count:.1f}",
            f"{verdicts.count('error')}",
            f"{verdicts.count('hung')}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratio(rows, name, other, samples=10_000):
    """Return how many times as many right answers a library has as another one, with the 95 % interval over tasks."""
    right = {
        key: {row["task"]: row["verdict"] == "right" for row in rows if row["library"] == key} for key in (name, other)
    }
    pairs = [(right[name][task], right[other][task]) for task in right[name] if task in right[other]]
    chance = random.Random(1)
    found = []
    for _ in range(samples):
        own, others = map(sum, zip(*chance.choices(pairs, k=len(pairs)), strict=True))
        found.append(own / others if others else float("inf"))
    found.sort()
    own, others = map(sum, zip(*pairs, strict=True))
    return (
        f"{name} against {other}, {len(pairs)} tasks: {own} and {others} right, "
        f"{own / others if others else float('inf'):.2f} times as many "
        f"(95 % interval {found[samples // 40]:.2f} to {found[-samples // 40]:.2f})"
    )
