"""What a model is told of a block, in adapters for frameworks."""

from __future__ import annotations

from collections.abc import Sequence

from codeact_sandbox.image_check import ImageRefused, check_image
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.text import apply_carriage_returns

MAX_IMAGES = 8  # images that one answer has. Its text lists the others by name
MAX_NAMES = 200


def answer_of(result: Result) -> tuple[str, list[tuple[bytes, str]]]:
    """Return the text for the model, and the checked images that the code has shown, each with its media type."""
    images: list[tuple[bytes, str]] = []
    notes = list(result.notes)
    for name, data in {each.name: each.image[0] for each in result.displays if each.image is not None}.items():
        reason = f"only {MAX_IMAGES} are"
        if len(images) < MAX_IMAGES:
            try:
                images.append(check_image(data))
                continue
            except ImageRefused as error:
                reason = str(error)
        notes.append(f"The image {printable(name)} is not shown: {reason}")
    return describe(result, notes), images


def describe(result: Result, notes: Sequence[str], calls: Sequence[str] = ()) -> str:
    """Describe a result for a model: output, failure, notes, calls and files."""
    output = apply_carriage_returns(result.output)
    parts = [output.rstrip("\n")] if output.strip() else []
    if result.exit_code != 0:
        parts.append(f"The code failed: {result.outcome}, exit code {result.exit_code}, session state {result.state}.")
    parts += [f"Note: {note}" for note in notes]
    parts += calls
    if result.artifacts:
        parts += ["Changed files:", *names_of([artifact.name for artifact in result.artifacts])]
    return "\n".join(parts) or "The code printed nothing."


def names_of(files: Sequence[str]) -> list[str]:
    more = [f"and {len(files) - MAX_NAMES:,} more files"] if len(files) > MAX_NAMES else []
    return [*map(printable, files[:MAX_NAMES]), *more]
