"""Names of packages that are imported when they are first used: AutoGen takes a second, and `codeact --help` needs none of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package's `__init__.py`, which import what it imports for type checkers.

    Its public names are listed once, as imports under `if TYPE_CHECKING:`, where type checkers read them too. They are read from
    the package's compiled code, which is there without its source, too.
    """

    @cache
    def homes() -> dict[str, str]:
        import dis  # noqa: PLC0415 - not needed to import the package

        loader: Any = sys.modules[package].__loader__
        found, home = {}, ""
        for instruction in dis.get_instructions(loader.get_code(package)):
            if instruction.opname == "IMPORT_NAME":
                home = instruction.argval
            elif instruction.opname == "IMPORT_FROM" and home.startswith("autogen_codeact.") and home != __name__:
                found[instruction.argval] = home
        return found

    def get(name: str) -> Any:
        if name == "__all__":
            return names()
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes()[name]), name)

    def names() -> list[str]:
        return sorted(homes())

    return get, names
