"""What cells of a notebook did in a session, compared with what they did in two runs of an IPython kernel."""

import base64
import io
import re
from dataclasses import dataclass, field

from PIL import Image, ImageChops, ImageStat

SAME_IMAGE = 0.01
"""Largest mean difference of two images that count as the same, of 1."""

THUMBNAIL = (24, 16)
"""Pixels of the images that are compared in tests."""


@dataclass
class Cell:
    """One cell, compared.

    Args:
        number: Its place among the notebook's cells with code, from 0.
        code: Its code.
        end: Whether it ended as in the kernel; None: not counted, because the kernel's own runs differ.
        figures: Whether it has shown as many figures, None: it shows none, or not always as many.
        images: For each of its figures whether it is the same image.
        value: Whether its value is the same, None: it has none, or not always the same.
        causes: Why it differs: a short cause that many cells share, and the detail.
    """

    number: int
    code: str
    end: bool | None = None
    figures: bool | None = None
    images: list[bool] = field(default_factory=list)
    value: bool | None = None
    causes: list[tuple[str, str]] = field(default_factory=list)


def differences(cells, first, second, ours):
    """Compare what a session did with two runs of the kernel.

    Args:
        cells: The code.
        first: What the kernel did, a record for each cell.
        second: What it did in the second run.
        ours: What the session did.
    """
    return [
        _compare(Cell(number, code), *records)
        for number, (code, *records) in enumerate(zip(cells, first, second, ours, strict=True))
    ]


def agreement(cells):
    """Return lines with the shares of cells, figures, images and values that are the same."""
    columns = {
        "cells end the same": [cell.end for cell in cells],
        "cells with figures show as many": [cell.figures for cell in cells],
        "figures have the same size and image": [same for cell in cells for same in cell.images],
        "values print the same": [cell.value for cell in cells],
    }
    lines = []
    for title, column in columns.items():
        counted = [same for same in column if same is not None]
        share = 100 * sum(counted) / len(counted) if counted else 100.0
        lines.append(f"{title}: {sum(counted)} of {len(counted)}, {share:.1f} %")
    return lines


def stable_result(first, second):
    """Return what both runs of the kernel have in common, with thumbnails instead of images.

    Args:
        first: What one cell did.
        second: What it did in the second run.

    Returns:
        Its `end`, its `value`, and its `figures`; None for each that is not the same in both.
    """
    figures = [figure_summary(data) for data in first["figures"]]
    same = [figure_summary(data) for data in second["figures"]] == figures
    stable = {name: first[name] if first[name] == second[name] else None for name in ("end", "value")}
    return {**stable, "figures": figures if same else None}


def figure_summary(data):
    """Return a figure's width, height and thumbnail.

    Args:
        data: The figure, in Base64.
    """
    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    small = Image.alpha_composite(white, image).convert("L").resize(THUMBNAIL)
    return [*image.size, base64.b64encode(small.tobytes()).decode()]


def unlike(expected, found):
    """Return in what a cell differs from a stable result: some of `end`, `value`, `number of figures`, `figure`.

    Args:
        expected: What `stable_result` has returned.
        found: What the session did.
    """
    names = [name for name in ("end", "value") if expected[name] not in (None, found[name])]
    if expected["figures"] is None:
        return names
    figures = [figure_summary(data) for data in found["figures"]]
    if len(figures) != len(expected["figures"]):
        return [*names, "number of figures"]
    pairs = zip(expected["figures"], figures, strict=True)
    return names if all(_alike(*pair) for pair in pairs) else [*names, "figure"]


def _alike(first, second):
    (*size, small), (*other_size, other) = first, second
    pixels = zip(base64.b64decode(small), base64.b64decode(other), strict=True)
    return size == other_size and sum(abs(a - b) for a, b in pixels) / len(base64.b64decode(small)) / 255 < SAME_IMAGE


def _compare(cell, first, second, ours):
    if first["end"] == second["end"]:
        cell.end = ours["end"] == first["end"]
        if not cell.end:
            cell.causes.append((f"ends: {first['end']} in the kernel, {ours['end']} here", ours["error"][:200]))
    if first["end"] == ours["end"] or first["figures"]:
        _compare_figures(cell, first["figures"], second["figures"], ours["figures"])
    if first["value"] is not None and first["value"] == second["value"] and cell.end:
        cell.value = ours["value"] == first["value"]
        if not cell.value:
            cell.causes.append(_value_cause(first["value"], ours["value"]))
    return cell


def _compare_figures(cell, first, second, ours):
    if len(first) != len(second) or not (first or ours):
        return
    cell.figures = len(first) == len(ours)
    if not cell.figures:
        cell.causes.append(("figures: another number", f"{len(first)} in the kernel, {len(ours)} here"))
        return
    for expected, again, found in zip(first, second, ours, strict=True):
        own = image_difference(expected, again)
        if own is None or own >= SAME_IMAGE:
            continue  # the kernel's own images differ
        difference = image_difference(expected, found)
        cell.images.append(difference is not None and difference < SAME_IMAGE)
        if difference is None:
            cell.causes.append(("images: another size", ""))
        elif difference >= SAME_IMAGE:
            cell.causes.append(("images: other pixels", f"mean difference {difference:.4f}"))


def image_difference(first, second):
    """Return the mean difference of two images' pixels, from 0 to 1, or None if their sizes differ.

    Args:
        first: An image, in Base64.
        second: The other.
    """
    if first == second:
        return 0.0
    images = [Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA") for data in (first, second)]
    if images[0].size != images[1].size:
        return None
    means = ImageStat.Stat(ImageChops.difference(*images)).mean
    return sum(means) / len(means) / 255


def _value_cause(expected, found):
    if found is None:
        return "values: none here", repr(expected[:200])
    if re.sub(r"\s+", "", expected) == re.sub(r"\s+", "", found):
        return "values: other white space", f"{expected[:200]!r} in the kernel, {found[:200]!r} here"
    if found.startswith(expected[: len(expected) // 2]) or expected.startswith(found[: len(found) // 2]):
        return "values: another end", f"{expected[-200:]!r} in the kernel, {found[-200:]!r} here"
    return "values: another text", f"{expected[:200]!r} in the kernel, {found[:200]!r} here"
