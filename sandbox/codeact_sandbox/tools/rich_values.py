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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import Annotated, Any

from codeact_sandbox.runner.worker import value_codec
from codeact_sandbox.tools.call_files import CallFiles
from codeact_sandbox.tools.json_sizes import check_array, check_table
from codeact_sandbox.tools.payloads import offload
from codeact_sandbox.types.tool import ToolArgumentError

MARK = "codeact"
INLINE_BYTES = 64 * 1024
MAX_ITEMS = 1_000
VALUE_FILE = "/tmp/.codeact-value-"  # noqa: S108 - a path in the sandbox
NO_FILES = "a file can be exchanged only with the code of a running block"
# Class, module that has it, and text of the annotation, by kind.
_LIBRARY_TYPES = {
    "array": ("numpy", "ndarray", "numpy.ndarray"),
    "table": ("pandas", "DataFrame", "pandas.DataFrame"),
    "series": ("pandas", "Series", "pandas.Series"),
    "image": ("PIL.Image", "Image", "PIL.Image.Image"),
}
_pack: Callable[[str, Any], bytes] = value_codec.pack
_unpack: Callable[[str, Any], Any] = value_codec.unpack
_TEXTS = {kind: text for kind, (_, _, text) in _LIBRARY_TYPES.items()} | {"path": "pathlib.Path"}


@dataclass(frozen=True)
class RichType:
    """The type of a parameter or result that is more than JSON.

    Args:
        kind: `array`, `table`, `series`, `image` or `path`.
        container: `list` or `dict` for a list of them, or a dict of them by text. None for one.
        optional: Whether it may be None.
        dtype: Type of the numbers of an array; None for any.
        note: Its description.
    """

    kind: str
    container: str | None = None
    optional: bool = False
    dtype: Any = None
    note: str = ""

    @property
    def word(self) -> str:
        """The kind as the stub has it: after "list " or "dict " for several."""
        return f"{self.container} {self.kind}" if self.container else self.kind

    @property
    def text(self) -> str:
        """The annotation, for readers."""
        text = _TEXTS[self.kind]
        text = {"list": f"list[{text}]", "dict": f"dict[str, {text}]"}.get(self.container or "", text)
        return f"{text} | None" if self.optional else text

    async def load(self, name: str, value: Any, files: CallFiles | None) -> Any:
        """Return an argument as the function takes it."""
        if value is None and self.optional:
            return None
        try:
            return await self._each(value, lambda item: self._load_one(item, files))
        except ModuleNotFoundError as error:
            raise ToolArgumentError(f"{name}: the host has no module {error.name}") from None
        except (ValueError, TypeError, OSError) as error:
            raise ToolArgumentError(f"{name}: {error}") from None

    async def dump(self, value: Any, files: CallFiles | None) -> Any:
        """Return a result as JSON."""
        if value is None:
            return None
        return await self._each(value, lambda item: self._dump_one(item, files))

    async def _each(self, value: Any, convert: Callable[[Any], Awaitable[Any]]) -> Any:
        if self.container is None:
            return await convert(value)
        expected: type = dict if self.container == "dict" else list
        if not isinstance(value, Mapping if expected is dict else Sequence) or isinstance(value, str):
            raise TypeError(f"must be a {expected.__name__}, not a {type(value).__name__}")
        if len(value) > MAX_ITEMS:
            raise TypeError(f"has {len(value):,} items; at most {MAX_ITEMS:,} can be sent")
        if isinstance(value, Mapping):
            return {str(key): await convert(item) for key, item in value.items()}
        return [await convert(item) for item in value]

    async def _load_one(self, value: Any, files: CallFiles | None) -> Any:
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
            case _ if self.kind in ("array", "table", "series") and isinstance(value, list | dict | int | float):
                return await offload(True, lambda: self._fitted(_from_json(self.kind, value)))
            case _:
                raise TypeError(f"must be a {_TEXTS[self.kind]}, not a {type(value).__name__}")
        return await offload(True, lambda: self._fitted(_unpack(self.kind, data)))

    def _fitted(self, value: Any) -> Any:
        """Convert an array to the annotated dtype if that loses nothing."""
        if self.dtype is None or value.dtype == self.dtype:
            return value
        if not sys.modules["numpy"].can_cast(value.dtype, self.dtype, "same_kind"):
            raise TypeError(f"must be an array of {self.dtype}, not of {value.dtype}")
        return value.astype(self.dtype)

    async def _dump_one(self, value: Any, files: CallFiles | None) -> Any:
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
        arguments = typing.get_args(annotation)
    container = {list: "list", Sequence: "list", dict: "dict", Mapping: "dict"}.get(
        typing.get_origin(annotation) or annotation
    )
    if container is not None:
        if not arguments or (container == "dict" and arguments[0] is not str):
            return None
        annotation = arguments[-1]
    kind = _kind_of(annotation)
    return RichType(kind, container, optional, _dtype_of(annotation), note) if kind is not None else None


def _kind_of(annotation: Any) -> str | None:
    origin = typing.get_origin(annotation) or annotation
    if origin in (Path, PosixPath):
        return "path"
    return next((kind for kind in _LIBRARY_TYPES if origin is not None and origin is _class_of(kind)), None)


def _class_of(kind: str) -> Any:
    """Return the class of a library; None if nobody has imported the library, because then nothing is of it."""
    module, name, _ = _LIBRARY_TYPES[kind]
    return getattr(sys.modules.get(module), name, None)


def _dtype_of(annotation: Any) -> Any:
    """Return the dtype in `NDArray[numpy.float64]`, or None."""
    arguments = typing.get_args(annotation)
    scalar = (typing.get_args(arguments[1]) or (None,))[0] if len(arguments) == 2 else None
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(scalar, type) or not issubclass(scalar, numpy.generic):
        return None
    try:
        return numpy.dtype(scalar)
    except TypeError:  # an abstract one, such as numpy.floating
        return None


def _from_json(kind: str, value: Any) -> Any:
    """Make an array or a table from lists, as code without numpy or pandas has them."""
    if kind == "array":
        check_array(value)
        array = sys.modules["numpy"].array(value)  # the annotation names the library, so it has been imported
        return _unpack("array", _pack("array", array))
    pandas = sys.modules["pandas"]
    if kind == "table":
        check_table(value)
    return pandas.DataFrame(value) if kind == "table" else pandas.Series(value)


def _needed(files: CallFiles | None) -> CallFiles:
    if files is None:
        raise TypeError(NO_FILES)
    return files
