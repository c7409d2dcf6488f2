"""Models that users make with keyword arguments, and the errors about these."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


class KeywordModel(BaseModel):
    """A model whose constructor raises the errors that Python's own arguments have; validating a config raises pydantic's."""

    def __init__(self, /, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            raise argument_error(error, type(self), arguments) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Take the texts in the annotations of fields as their descriptions."""
        for field in cls.model_fields.values():
            field.description = next((each for each in field.metadata if isinstance(each, str)), field.description)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # pydantic does not call it for a config


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, empty if none of the known ones is like it."""
    near = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_option(caller: Callable[..., Any], name: str, known: Iterable[str]) -> TypeError:
    own = [each.name for each in inspect.signature(caller).parameters.values() if each.kind is not each.VAR_KEYWORD]
    return TypeError(f"{caller.__name__}() has no option {name!r}{did_you_mean(name, [*known, *own])}")


def check_names(
    caller: Callable[..., Any], given: Iterable[str], kinds: Mapping[str, Collection[str]], sandbox: str
) -> None:
    for name in set(given).difference(kinds[sandbox]):
        if any(name in names for names in kinds.values()):
            raise ValueError(f"{name}= is not for sandbox={sandbox!r}: leave it out, or choose another sandbox")
        raise unknown_option(caller, name, kinds[sandbox])


def argument_error(
    error: ValidationError, caller: type, given: Mapping[str, Any], known: Iterable[str] = ()
) -> TypeError | ValueError:
    first = error.errors()[0]
    # A limit that was given by name has been moved into `limits`.
    path = [str(each) for each in first["loc"]]
    name, *rest = path[1:] if len(path) > 1 and path[0] not in given else path or [""]
    rest = [each for each in rest if each not in ("str", "int")]  # the kinds of a union
    if first["type"] == "extra_forbidden" and not rest:
        return unknown_option(caller, name, known)
    if isinstance(cause := first.get("ctx", {}).get("error"), ValueError):
        return cause if name in str(cause) else ValueError(f"{name}: {cause}")
    return ValueError(f"{caller.__name__}({name}=…): {'.'.join([*rest, ''])}{_plain(first['msg'])}")


def _plain(message: str) -> str:
    text = message.partition(",")[0].replace("Input should be a valid boolean", "must be True or False")
    return (
        text.replace("Input should be a valid", "must be a")
        .replace("Input should be", "must be")
        .replace(" a int", " an int")
    )
