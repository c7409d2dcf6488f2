"""Draws the curves as SVG; runs in an environment with matplotlib.

python plots.py FIGURES.json FOLDER
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "autogen-codeact"  # the same figures give the same file
mpl.rcParams["svg.fonttype"] = "none"

from matplotlib import pyplot as plt  # noqa: E402 - after the backend is chosen

LOG = {"sessions": 2, "output": 10, "files": 10}


def draw(name, label, title, lines, folder):
    """Draw one plot: medians, and the quartiles as a band."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for line, points in lines.items():
        if not points:
            continue
        x = [point[0] for point in points]
        axes.plot(x, [1e3 * statistics.median(point[1]) for point in points], marker="o", markersize=3, label=line)
        quartiles = [
            statistics.quantiles(point[1], n=4, method="inclusive") if len(point[1]) > 1 else point[1] * 3
            for point in points
        ]
        axes.fill_between(x, [1e3 * q[0] for q in quartiles], [1e3 * q[2] for q in quartiles], alpha=0.15)
    if name in LOG:
        axes.set_xscale("log", base=LOG[name])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(label)
    axes.set_ylabel("ms, median and quartiles")
    axes.set_title(title, fontsize=9)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(Path(folder) / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    figures = json.loads(Path(sys.argv[1]).read_text())
    for curve, (label, title) in figures["about"].items():
        draw(curve, label, title, figures["curves"][curve], sys.argv[2])
