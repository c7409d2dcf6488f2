"""Groups of options that several commands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Command = Callable[..., None]


def with_options(
    argument: str, options: Callable[..., Any], changes: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[Command], Command]:
    """Give a command a group of options, in the place of one of its arguments."""

    def decorate(command: Command) -> Command:
        shared = dict(inspect.signature(options, eval_str=True).parameters)
        for name, change in (changes or {}).items():
            shared[name] = shared[name].replace(**change)

        def run(**arguments: Any) -> None:
            value = options(**{name: arguments.pop(name) for name in shared})
            command(**{argument: value}, **arguments)

        every: list[inspect.Parameter] = []
        for name, own in inspect.signature(command, eval_str=True).parameters.items():
            every += shared.values() if name == argument else [own]
        every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in every]
        run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in every}
        run.__doc__ = command.__doc__
        return run

    return decorate
