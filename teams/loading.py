"""Loading components, also from untrusted configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autogen_core import ComponentLoader, ComponentModel
from pydantic_core import from_json

from autogen_codeact.teams.untrusted import MAX_BYTES, checked
from autogen_codeact.teams.untrusted import RefusedConfigError as RefusedConfigError  # noqa: PLC0414 - its public place


def load_component(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    trusted: bool = False,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
    expected: type[Any] = object,
) -> Any:
    """Load an agent, a team, an executor or another component from its configuration.

    A trusted configuration is loaded as AutoGen does it, which can run code on this machine. An untrusted one may contain
    only components and fields of an allow-list (docs/security.md), and is checked as a whole before anything is imported.

    Args:
        source: JSON text, the path of a JSON file, the parsed JSON, or a result of `dump_component()`.
        trusted: Whether the configuration comes from somebody who may run code on this machine. Default False.
        allow_keys: Whether models of an untrusted configuration may use this process's keys at their vendor's own server,
            for example OPENAI_API_KEY. Default False.
        work_dir: The `work_dir` of each executor of an untrusted configuration. Default None: a temporary folder each.
        expected: Class that the component must be an instance of. Default: any.

    Returns:
        The component.

    Raises:
        RefusedConfigError: The configuration is untrusted and contains what is not allowed.
        ValueError: It is not a component's configuration.
        TypeError: The component is not of the expected class.
        NotImplementedError: It was dumped by a version that the component's class can't read.
        OSError: The file can't be read.
    """
    if not trusted:
        model: Any = check_untrusted(source, allow_keys=allow_keys, work_dir=work_dir)
    elif work_dir is not None:
        raise ValueError("work_dir= is for untrusted configurations; a trusted one contains its own.")
    elif isinstance(source, str | bytes | Path):
        model = _parsed(source)
    else:
        model = source
    if not isinstance(model, ComponentModel):
        model = ComponentModel.model_validate(model)
    return ComponentLoader.load_component(model, expected=expected)


def check_untrusted(
    source: str | bytes | Path | Mapping[str, Any] | ComponentModel,
    *,
    allow_keys: bool = False,
    work_dir: Path | str | None = None,
) -> dict[str, Any]:
    """Check an untrusted configuration without loading anything."""
    if isinstance(source, ComponentModel):
        source = source.model_dump()
    elif isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(MAX_BYTES + 1)
    return checked(source, allow_keys=allow_keys, work_dir=str(work_dir) if work_dir is not None else None)


def _parsed(source: str | bytes | Path) -> Any:
    name = str(source) if isinstance(source, Path) else "The configuration"
    text = source.read_bytes() if isinstance(source, Path) else source
    try:
        return from_json(text if isinstance(text, str) else text.removeprefix(b"\xef\xbb\xbf"), allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON ({error}). Give the text, or a pathlib.Path of a file.") from None
