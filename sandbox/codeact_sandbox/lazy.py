"""Names of packages that are imported when they are first used: AutoGen takes a second, and `codeact --help` needs none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, table: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package (PEP 562); `table` has its names, separated by spaces, by module."""
    homes = {name: module for module, names in table.items() for name in names.split()}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted(homes)
