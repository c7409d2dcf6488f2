"""Replacing methods of single objects, and putting them back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

ATTRIBUTE = "_codeact_telemetry"
_changing = threading.RLock()


class Patch:
    """A method of one object that is replaced by another function."""

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._owner, self._name = owner, name
        self._had_own = name in vars(owner)
        self._before = getattr(owner, name)
        replaced = make(self._before)
        self._active = True

        @wraps(self._before)  # agents look at its signature
        def patched(*args: Any, **kwargs: Any) -> Any:
            return (replaced if self._active else self._before)(*args, **kwargs)

        self._patched = patched
        setattr(owner, name, patched)

    def undo(self) -> None:
        """Put the method back. If it has been replaced again since, this replacement just passes on."""
        self._active = False
        if vars(self._owner).get(self._name) is not self._patched:
            return
        if self._had_own:
            setattr(self._owner, self._name, self._before)
        else:
            delattr(self._owner, self._name)


def undo_all(*patches: Patch) -> Callable[[], None]:
    """Return a function that undoes patches."""

    def undo() -> None:
        for patch in patches:
            patch.undo()

    return undo


@dataclass
class _Use:
    """How many instrumentations for one tracer provider use an object."""

    provider: object
    count: int
    undo: Callable[[], None]


def share(part: Any, provider: object, begin: Callable[[], Callable[[], None]]) -> Callable[[], None]:
    """Instrument an object, unless it already is for the same provider: what two agents share is reported once."""
    key = id(provider)
    with _changing:
        uses: dict[int, _Use] = vars(part).setdefault(ATTRIBUTE, {})
        if key not in uses:
            uses[key] = _Use(provider, 0, begin())
        uses[key].count += 1

    def end() -> None:
        with _changing:
            use = uses[key]
            use.count -= 1
            if use.count:
                return
            del uses[key]
            if not uses:
                vars(part).pop(ATTRIBUTE, None)
            use.undo()

    return end
