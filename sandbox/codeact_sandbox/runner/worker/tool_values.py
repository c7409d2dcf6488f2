"""Stubs of host tools, built from data, and the conversion of their arguments to JSON; runs in their module.

Names and texts in that data may come from third parties: they are looked up, compared and shown, and never run as code.
"""

import base64 as _base64
import collections as _collections
import dataclasses as _dataclasses
import datetime as _datetime
import decimal as _decimal
import enum as _enum
import functools as _functools
import hashlib as _hashlib
import inspect as _inspect
import os as _os
import pathlib as _pathlib
import sys as _sys
import threading as _threading
import types as _types
import typing as _typing
import uuid as _uuid


class _Default:
    """Stands in a stub's signature for a default, which the host fills in."""

    def __init__(self, text, *value):
        self.text = text
        self.value = value

    def __repr__(self):
        return self.text

    def __eq__(self, other):
        return self is other or (bool(self.value) and self.value[0] == other)

    def __hash__(self):
        return hash(self.text)


class _Type:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def _define(name, data):
    """Make a function of this module, or of a group of functions in it; those of many when they are first used."""
    group, _, own = name.rpartition(".")
    if "from" in data:
        _group(group)._waiting[own] = data["from"]
        return
    stub = _Stub(name, data)
    kind = data["rich"]
    result = _decoded if data["bytes"] else _functools.partial(_unpacked, kind) if kind else lambda value: value

    def function(*args, **kwargs):
        with _Files() as files:
            return result(_call(name, stub.arguments(args, kwargs, files)))  # noqa: F821 - a name of the module

    async def awaitable(*args, **kwargs):
        with _Files() as files:
            return result(await _call_async(name, stub.arguments(args, kwargs, files)))  # noqa: F821

    for each, title in ((function, name), (awaitable, name + ".aio")):
        each.__name__, each.__qualname__, each.__doc__ = name.rpartition(".")[2], title, data["doc"] or None
        each.__signature__, each.__annotations__ = stub.signature, dict(stub.annotations)
    function.aio = awaitable
    if group:
        setattr(_group(group), own, function)
    else:
        globals()[name] = function


def _group(name):
    return globals().setdefault(name, _Group(name))


class _Group(_types.ModuleType):
    """Functions of one source, where another one has the same names or there are many."""

    def __init__(self, name):
        super().__init__(name)
        self._waiting = {}

    def __getattr__(self, name):
        whole = "%s.%s" % (self.__name__, name)
        origin = vars(self).get("_waiting", {}).get(name)
        if origin is None:
            raise AttributeError("there is no host tool " + whole)
        _define(whole, _call(origin, {"stub": whole}))  # noqa: F821 - a name of the module
        return vars(self)[name]

    def __dir__(self):
        return sorted({name for name in vars(self) if not name.startswith("_")} | set(self._waiting))

    def __repr__(self):
        return "<host tools %s>" % self.__name__


class _Stub:
    def __init__(self, name, data):
        self.name = name
        self.rows = {row["name"]: row for row in data["parameters"]}
        types = [(row["name"], row["type"]) for row in data["parameters"]] + [("return", data["type"])]
        self.annotations = {key: _TYPES.get(text) or _Type(text) for key, text in types if text is not None}
        self.signature = _inspect.Signature(
            [self._parameter(row) for row in data["parameters"]],
            return_annotation=self.annotations.get("return", _inspect.Signature.empty),
        )

    def _parameter(self, row):
        default = _inspect.Parameter.empty
        if row["omitted"]:
            default = None
        elif row["default"] is not None:
            default = _Default(row["default"], *row["values"])
        annotation = self.annotations.get(row["name"], _inspect.Parameter.empty)
        kind = getattr(_inspect.Parameter, row["kind"])
        return _inspect.Parameter(row["name"], kind, default=default, annotation=annotation)

    def arguments(self, args, kwargs, files):
        """The passed arguments as JSON values, by the host's names; large ones are written to files."""
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError("%s(): %s" % (self.name, error)) from None
        values = {}
        for name, value in bound.items():
            row = self.rows[name]
            if not isinstance(value, _Default) and not (value is None and row["omitted"]):
                values[row["key"]] = self._converted(row, value, files)
        return values

    def _converted(self, row, value, files):
        if not row["rich"]:
            return _plain(_with_base64(value) if row["bytes"] else value)
        try:
            return _packed(row["rich"], value, files)
        except (TypeError, OSError) as error:
            text = "%s(): the argument %r can't be sent to the host: %s" % (self.name, row["name"], error)
            raise type(error)(text) from None


def _plain(value):
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kinds, make in _PLAIN:
        if isinstance(value, kinds):
            return make(value)
    return _plain_other(value)


def _plain_key(key):
    key = _plain(key)
    return key if isinstance(key, (str, int, float, bool)) else str(key)


def _plain_other(value):
    if isinstance(value, type):
        raise TypeError("the class %s can't be given to a host tool: give an object" % value.__name__)
    if _dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in _dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):  # numpy and pandas
        return _plain(value.tolist())
    raise TypeError(
        "an object of type %s can't be given to a host tool: give what JSON can hold, such as a dict"
        % type(value).__name__
    )


def _text(value):
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise TypeError("only bytes of UTF-8 text can be passed here: encode others, for example as base64") from None


_PLAIN = (
    (_enum.Enum, lambda value: _plain(value.value)),
    ((str, int, float), lambda value: value),
    (dict, lambda value: {_plain_key(key): _plain(item) for key, item in value.items()}),
    ((list, tuple, set, frozenset), lambda value: [_plain(item) for item in value]),
    ((_datetime.date, _datetime.time), lambda value: value.isoformat()),
    (_datetime.timedelta, lambda value: value.total_seconds()),
    (_os.PathLike, _os.fspath),
    ((_uuid.UUID, _decimal.Decimal), str),
    ((bytes, bytearray), _text),
)


def _with_base64(value):
    """Encode the bytes of a parameter that takes bytes."""
    if isinstance(value, (bytes, bytearray)):
        return _base64.b64encode(value).decode()
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_with_base64(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_base64(item) for key, item in value.items()}
    return value


def _decoded(value):
    """Decode a result that is bytes; anything else stays as it is."""
    try:
        return _base64.urlsafe_b64decode(value)
    except (TypeError, ValueError):
        return value


# Arrays, tables, images and files: small ones as base64, others as files that the host reads and writes.
_CODEC_SOURCE = ""
_INLINE_BYTES = 64 * 1024
_VALUE_FILE = "/tmp/.codeact-value-"
_uses = _collections.Counter()  # how many calls use a file
_using = _threading.RLock()
_NAMES = {"array": "numpy.ndarray", "table": "pandas.DataFrame", "image": "PIL.Image.Image"}


@_functools.lru_cache(maxsize=None)
def _codec():
    module = _types.ModuleType("_codec")
    exec(compile(_CODEC_SOURCE, "<host_tools._codec>", "exec"), module.__dict__)
    return module


class _Files(list):  # type: ignore[type-arg]
    """The files that were written for the arguments of a call; removed after it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with _using:
            for path in self:
                _uses[path] -= 1
                if not _uses[path]:
                    del _uses[path]
                    _remove(path)


def _packed(kind, value, files):
    """Make an argument of a kind into what JSON can hold."""
    if kind == "path" and value is not None:
        return _file_of(value)
    if value is None or not _is_of(kind, value):
        if kind == "image" and value is not None:
            raise TypeError("it must be an image of Pillow, not a %s" % type(value).__name__)
        return _plain(value)  # lists in place of an array or a table: from code that has no numpy or pandas
    data = _codec().pack(kind, value)
    if len(data) <= _INLINE_BYTES:
        return {"codeact": "value", "data": _base64.b64encode(data).decode()}
    # Named by its content: a call that is made again after a while has the same arguments.
    path = _VALUE_FILE + _hashlib.sha256(data).hexdigest()
    with _using:
        files.append(path)
        _uses[path] += 1
        if _uses[path] == 1:
            with open(path, "wb") as file:
                file.write(data)
    return {"codeact": "file", "path": path}


def _remove(path):
    try:
        _os.unlink(path)
    except OSError:
        pass  # the code has removed it


def _is_of(kind, value):
    module, _, name = _NAMES[kind].rpartition(".")
    expected = getattr(_sys.modules.get(module), name, None)
    return expected is not None and isinstance(value, expected)


def _file_of(value):
    if not isinstance(value, (str, _os.PathLike)):
        raise TypeError("it must be the path of a file, not a %s" % type(value).__name__)
    path = _os.path.realpath(_os.fspath(value))
    if not _os.path.isfile(path):
        raise FileNotFoundError("there is no file %s in the sandbox" % path)
    return {"codeact": "file", "path": path}


def _unpacked(kind, value):
    if value is None:
        return None
    if value["codeact"] == "value":
        return _codec().unpack(kind, _base64.b64decode(value["data"]))
    if kind == "path":
        return _pathlib.Path(value["path"])
    with open(value["path"], "rb") as file:
        data = file.read()
    _remove(value["path"])
    return _codec().unpack(kind, data)


_TYPES = {"Any": _typing.Any, "bool": bool, "bytes": bytes, "float": float, "int": int, "str": str}
