"""Values of host tools that are more than JSON: arrays, tables, images and files.

In a call or an answer such a value is an object: `{"codeact": "value", "data": base64}` if it is small, else
`{"codeact": "file", "path": …}`, a file of the sandbox, which is read or written over the stream like every other file.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import sys
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import Annotated, Any

from codeact_sandbox.runner.worker import value_codec
from codeact_sandbox.tools.call_files import CallFiles
from codeact_sandbox.tools.payloads import offload
from codeact_sandbox.types.tool import ToolArgumentError

MARK = "codeact"
INLINE_BYTES = 64 * 1024
VALUE_FILE = "/tmp/.codeact-value-"  # noqa: S108 - a path in the sandbox
FREE = 10_000
RATIO = 20  # a table may have this many times as many cells as were sent, and `FREE` more: pandas pads short rows
NO_FILES = "a file can be exchanged only with the code of a running block"
# Class, module that has it, and text of the annotation, by kind.
_LIBRARY_TYPES = {
    "array": ("numpy", "ndarray", "numpy.ndarray"),
    "table": ("pandas", "DataFrame", "pandas.DataFrame"),
    "image": ("PIL.Image", "Image", "PIL.Image.Image"),
}
_pack: Callable[[str, Any], bytes] = value_codec.pack
_unpack: Callable[[str, Any, Callable[[int], None]], Any] = value_codec.unpack
_TEXTS = {kind: text for kind, (_, _, text) in _LIBRARY_TYPES.items()} | {"path": "pathlib.Path"}


@dataclass(frozen=True)
class RichType:
    """The type of a parameter or result that is more than JSON."""

    kind: str  # `array`, `table`, `image` or `path`
    optional: bool = False  # whether it may be None
    note: str = ""

    @property
    def text(self) -> str:
        """The annotation, for readers."""
        return f"{_TEXTS[self.kind]} | None" if self.optional else _TEXTS[self.kind]

    async def load(self, name: str, value: Any, files: CallFiles | None) -> Any:
        """Return an argument as the function takes it."""
        if value is None and self.optional:
            return None
        with _argument_errors(name):
            return await self._load(value, files)

    async def fetch(self, name: str, value: Any, files: CallFiles) -> Any:
        """Copy the file of an argument to the host; return what it contains, for a question."""
        match value:
            case {"codeact": "file", "path": str(path)}:
                with _argument_errors(name):
                    content = await files.fetch(path)
                return {"path": path, **content} if self.kind == "path" else {self.kind: content}
        return value

    async def dump(self, value: Any, files: CallFiles | None) -> Any:
        """Return a result as JSON."""
        if value is None:
            return None
        if self.kind == "path":
            if not isinstance(value, os.PathLike):
                raise TypeError(f"the tool returned a {type(value).__name__} instead of a path")
            return {MARK: "file", "path": await _needed(files).copy_out(Path(value))}
        if not isinstance(value, _class_of(self.kind)):
            raise TypeError(f"the tool returned a {type(value).__name__} instead of a {_TEXTS[self.kind]}")
        data = await offload(True, lambda: _pack(self.kind, value))
        if len(data) <= INLINE_BYTES or files is None:
            return {MARK: "value", "data": base64.b64encode(data).decode()}
        path = VALUE_FILE + secrets.token_hex(8)
        await files.write(path, data)
        return {MARK: "file", "path": path}

    async def _load(self, value: Any, files: CallFiles | None) -> Any:
        match value:
            case {"codeact": "file", "path": str(path)} if self.kind == "path":
                return await _needed(files).copy_in(path)
            case {"codeact": "file", "path": str(path)}:
                data = await _needed(files).read(path)
            case {"codeact": "value", "data": str(text)} if self.kind != "path":
                try:
                    data = base64.b64decode(text, validate=True)
                except binascii.Error:
                    raise ValueError("it is malformed (no base64)") from None
            case _ if self.kind in ("array", "table") and isinstance(value, list | dict | int | float):
                return await offload(True, lambda: _from_json(self.kind, value))
            case _:
                raise TypeError(f"must be a {_TEXTS[self.kind]}, not a {type(value).__name__}")
        return await offload(True, lambda: _unpack(self.kind, data, files.take if files is not None else _ignore))


def _ignore(_: int) -> None:
    """Count nothing: outside a sandbox there is no budget."""


@contextmanager
def _argument_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise ToolArgumentError(f"{name}: the host has no module {error.name}") from None
    except (ValueError, TypeError, OSError) as error:
        raise ToolArgumentError(f"{name}: {error}") from None


def rich_type(annotation: Any) -> RichType | None:
    """Return the type that an annotation stands for, or None if it is plain."""
    note = ""
    if typing.get_origin(annotation) is Annotated:
        annotation, *more = typing.get_args(annotation)
        note = next((each for each in more if isinstance(each, str)), "")
    arguments = typing.get_args(annotation)
    optional = typing.get_origin(annotation) in (types.UnionType, typing.Union) and type(None) in arguments
    if optional and len(arguments) == 2:
        annotation = next(each for each in arguments if each is not type(None))
    kind = _kind_of(annotation)
    return RichType(kind, optional, note) if kind is not None else None


def _kind_of(annotation: Any) -> str | None:
    origin = typing.get_origin(annotation) or annotation
    if origin in (Path, PosixPath):
        return "path"
    return next((kind for kind in _LIBRARY_TYPES if origin is not None and origin is _class_of(kind)), None)


def _class_of(kind: str) -> Any:
    """Return the class of a library; None if the library is not imported, because then no value is an instance of it."""
    module, name, _ = _LIBRARY_TYPES[kind]
    return getattr(sys.modules.get(module), name, None)


def _from_json(kind: str, value: Any) -> Any:
    """Make an array or a table from lists, as code without numpy or pandas has them."""
    if kind == "array":
        if not _is_numbers(value):
            raise TypeError("must be a numpy.ndarray, or lists of numbers")
        return sys.modules["numpy"].array(value)  # the annotation names the library, so it has been imported
    check_table(value)
    return sys.modules["pandas"].DataFrame(value)


def _is_numbers(value: Any) -> bool:
    # Texts would be as long as the longest one, which can take far more memory.
    return all(map(_is_numbers, value)) if isinstance(value, list) else isinstance(value, int | float)


def _needed(files: CallFiles | None) -> CallFiles:
    if files is None:
        raise TypeError(NO_FILES)
    return files


def check_table(value: Any) -> None:
    """Check rows or columns that become a table: each row gets all columns, and each column all rows."""
    parts = list(value.values() if isinstance(value, dict) else value) if isinstance(value, dict | list) else []
    names = set[str]().union(*(part.keys() for part in parts if isinstance(part, dict)))
    sizes = [len(part) if isinstance(part, list | dict) else 1 for part in parts]
    cells = len(parts) * max(len(names), *sizes, 0, 0)
    if cells > FREE + RATIO * sum(sizes):
        raise ValueError(f"it would have {cells:,} cells, far more than were sent: fill in what is missing")
