"""Names of packages that are imported when they are first used: AutoGen takes a second, and `codeact --help` needs none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package's `__init__.py`.

    Args:
        package: Its name.
        home: The module in which each public name is defined: of this package (`errors`), or by its whole name.
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = home[name] if "." in home[name] else f"{package}.{home[name]}"
        return getattr(import_module(module), name)

    def names() -> list[str]:
        return sorted(home)

    return get, names
