"""Stubs of host tools, built from data, and the conversion of their values to and from JSON; runs in their module.

Names and texts in that data may come from third parties: they are looked up, compared and shown, and never run as code.
"""

import base64 as _base64
import copy as _copy
import dataclasses as _dataclasses
import datetime as _datetime
import decimal as _decimal
import enum as _enum
import inspect as _inspect
import os as _os
import pathlib as _pathlib
import re as _re
import typing as _typing
import uuid as _uuid

_DURATION = _re.compile(r"(-)?P(?:(\d+)Y)?(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")


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
    """A type without its own name in a stub's signature."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def _define(name, data):
    """Make a function or a class of this module.

    Args:
        name: Its name.
        data: Its definition, `Stub.data` or `ClassText.data` of the host.
    """
    globals()[name] = _KINDS[data["kind"]](name, data)


def _make_function(name, data):
    stub = _Stub(name, data)

    def function(*args, **kwargs):
        return _build(stub.result, _call(name, stub.arguments(args, kwargs)))  # noqa: F821 - a name of the module

    async def awaitable(*args, **kwargs):
        return _build(stub.result, await _call_async(name, stub.arguments(args, kwargs)))  # noqa: F821

    for each, title in ((function, name), (awaitable, name + ".aio")):
        each.__name__, each.__qualname__, each.__doc__ = name, title, data["doc"] or None
        each.__signature__, each.__annotations__ = stub.signature, dict(stub.annotations)
    function.aio = awaitable
    return function


class _Stub:
    """The parameters and the result of a function.

    Args:
        name: Its name.
        data: Its data.
    """

    def __init__(self, name, data):
        self.name = name
        self.result = data["spec"]
        self.rows = {row["name"]: row for row in data["parameters"]}
        types = [(row["name"], row["type"]) for row in data["parameters"]] + [("return", data["type"])]
        self.annotations = {key: _type_of(text) for key, text in types if text is not None}
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

    def arguments(self, args, kwargs):
        """The passed arguments as JSON values, by the host's names."""
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError("%s(): %s" % (self.name, error)) from None
        given = {}
        for name, value in bound.items():
            row = self.rows[name]
            if not isinstance(value, _Default) and not (value is None and row["omitted"]):
                given[row["key"]] = _plain(_with_base64(value) if row["bytes"] else value)
        return given


def _make_dataclass(name, data):
    rows = zip(data["fields"], data["types"], data["defaults"])
    fields = [
        (row[0], _type_of(text)) + tuple(_default_field(row[2], value) for value in default)
        for row, text, default in rows
    ]
    return _finish(_dataclasses.make_dataclass(name, fields, namespace=_words(data)), data)


def _default_field(spec, value):
    if spec is None and not isinstance(value, (list, dict)):
        return _dataclasses.field(default=value)
    return _dataclasses.field(default_factory=lambda: _build(spec, _copy.deepcopy(value)))


def _make_typed_dict(name, data):
    return _finish(type(name, (dict,), _words(data)), data)


def _finish(made, data):
    made.__module__ = __name__
    made._codeact_fields, made._codeact_signs = data["fields"], data["signs"]
    return made


def _make_enum(name, data):
    bases = {"str": str, "int": int, "float": float}
    made = _enum.Enum(
        name, [tuple(member) for member in data["members"]], module=__name__, type=bases.get(data["base"])
    )
    made.__doc__ = data["doc"] or made.__doc__
    return made


def _words(data):
    return {"__doc__": data["doc"]} if data["doc"] else {}


_KINDS = {
    "function": _make_function,
    "dataclass": _make_dataclass,
    "typed_dict": _make_typed_dict,
    "enum": _make_enum,
}


def _type_of(text):
    """The type with a name; another text stays a text."""
    found = _NAMES.get(text) or globals().get(text)
    return found if isinstance(found, type) or found is _typing.Any else _Type(text)


def _plain(value):
    """Make a value into what JSON can hold."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kinds, make in _PLAIN:
        if isinstance(value, kinds):
            return make(value)
    return _plain_other(value)


def _plain_object(value):
    plain = {}
    for attribute, key, _, sent in type(value)._codeact_fields:
        item = getattr(value, attribute, None)
        if sent == "always" or (sent == "given" and item is not None):
            plain[key] = _plain(item)
    return plain


def _plain_key(key):
    key = _plain(key)
    return key if isinstance(key, (str, int, float, bool)) else str(key)


def _plain_other(value):
    if isinstance(value, type):
        raise TypeError("the class %s can't be given to a host tool: give an object" % value.__name__)
    if hasattr(value, "_codeact_fields"):
        return _plain_object(value)
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
        raise TypeError(
            "bytes that are no UTF-8 text can't be given here: encode them, for example as base64"
        ) from None


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


def _build(spec, value):
    """Make what the signature says out of what JSON held; what does not fit stays as it is."""
    if spec is None or value is None:
        return value
    try:
        return _make(spec, value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return value


def _make(spec, value):
    kind = spec[0]
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if kind == "union":
        return _make_one_of(spec[1:], value)
    if kind == "class":
        return _make_object(globals()[spec[1]], value)
    if kind == "enum":
        return globals()[spec[1]](value)
    if kind == "dict":
        return {_build(spec[1], key): _build(spec[2], item) for key, item in value.items()}
    return _make_sequence(kind, spec[1:], value)


def _make_sequence(kind, specs, value):
    if not isinstance(value, list):
        raise TypeError
    if kind == "tuple" and specs[-1:] != ["..."]:
        return tuple(_build(spec, item) for spec, item in zip(specs, value))
    return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](
        _build(specs[0], item) for item in value
    )


def _make_object(kind, value):
    if not isinstance(value, dict):
        raise TypeError
    if issubclass(kind, dict):
        specs = {key: spec for _, key, spec, _ in kind._codeact_fields}
        return {key: _build(specs.get(key), item) for key, item in value.items()}
    made = object.__new__(kind)
    rest = dict(value)
    for attribute, key, spec, _ in kind._codeact_fields:
        setattr(made, attribute, _build(spec, rest.pop(key, None)))
    for key, item in rest.items():
        setattr(made, key, item)
    return made


def _make_one_of(specs, value):
    for spec in specs:
        if _fits(spec, value):
            try:
                return _make(spec, value) if spec is not None else value
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                continue
    return value


def _fits(spec, value):
    if spec is None:
        return not isinstance(value, (dict, list))
    if spec[0] == "class":
        required, constants = globals()[spec[1]]._codeact_signs
        return (
            isinstance(value, dict)
            and set(required) <= set(value)
            and all(value[k] in c for k, c in constants if k in value)
        )
    return isinstance(
        value, {"list": list, "set": list, "frozenset": list, "tuple": list, "dict": dict}.get(spec[0], object)
    )


def _make_duration(value):
    if isinstance(value, (int, float)):
        return _datetime.timedelta(seconds=value)
    sign, years, days, hours, minutes, seconds = _DURATION.fullmatch(value).groups()
    length = _datetime.timedelta(
        days=int(years or 0) * 365 + int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=float(seconds or 0),
    )
    return -length if sign else length


def _iso(value):
    # Python before 3.11 does not read the Z.
    return value[:-1] + "+00:00" if value.endswith("Z") else value


_SCALARS = {
    "int": int,
    "float": float,
    "datetime": lambda value: _datetime.datetime.fromisoformat(_iso(value)),
    "date": _datetime.date.fromisoformat,
    "time": lambda value: _datetime.time.fromisoformat(_iso(value)),
    "timedelta": _make_duration,
    "path": _pathlib.Path,
    "uuid": _uuid.UUID,
    "decimal": _decimal.Decimal,
    "bytes": lambda value: value.encode(),
    "base64": _base64.b64decode,
}

_NAMES = {
    "Any": _typing.Any,
    "bool": bool,
    "bytes": bytes,
    "float": float,
    "int": int,
    "str": str,
    "Decimal": _decimal.Decimal,
    "Path": _pathlib.Path,
    "UUID": _uuid.UUID,
    "date": _datetime.date,
    "datetime": _datetime.datetime,
    "time": _datetime.time,
    "timedelta": _datetime.timedelta,
}
