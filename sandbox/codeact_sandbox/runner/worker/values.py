"""The value of a cell: its text, where IPython and `repr` agree or there is no IPython; and a plain value itself, as JSON."""

import json
import sys

from . import imports

# The width at which IPython breaks a container into lines.
WIDTH = 79
MAX_ITEMS = 50
_PLAIN = frozenset((int, float, complex, str, bytes, bool, type(None), range, slice))
# Classes that IPython shows in its own way, also in subclasses; and modules with such classes.
_OWN_WAY = frozenset((tuple, list, dict, set, frozenset, super, type, BaseException))
_OWN_WAY_NAMES = frozenset(
    "SimpleNamespace mappingproxy _Environ function builtin_function_or_method Pattern SRE_Pattern defaultdict OrderedDict "
    "deque Counter UserList UserDict".split()
)
# Of a value that is sent itself: its JSON in bytes, how deep it is nested, and the bits of a number.
PLAIN_BYTES = 64 * 1024
_PLAIN_DEPTH = 16
_PLAIN_BITS = 8192
_SIZED = frozenset((str, bytes, list, tuple, dict, set, frozenset))
_SCALARS = frozenset((bool, int, float, complex, str, bytes))
# A reference of its own: user code may replace the functions of the module json.
_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def text_like_repr(value):
    """Return the `repr` of a value if IPython shows the same text, else None."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind in (list, tuple, dict):
        text = repr(value) if _is_plain(value, 3) else None
        return text if text is not None and len(text) <= WIDTH else None
    if hasattr(value, "_repr_pretty_") or kind.__repr__ is object.__repr__:
        return None
    for base in kind.__mro__:
        if base in _OWN_WAY or base.__name__ in _OWN_WAY_NAMES:
            return None
    try:
        return _joined(repr(value))
    except Exception:
        return None  # IPython prints the error, and the cell ends well


def own_text(value):
    """Return the text of a value as IPython would show it, as far as the standard library can."""
    if isinstance(value, type):
        module, name = value.__module__, value.__qualname__
        return name if module in ("builtins", "exceptions") else "%s.%s" % (module, name)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return imports.own_import("pprint").pformat(value, width=WIDTH + 1, sort_dicts=False)
    return _joined(repr(value))


def encode(value):
    """Return a plain value as JSON, in which an object with one name stands for what JSON does not have: `{"tuple": [1, 2]}`."""
    try:
        text = _dump(_tagged(value, _PLAIN_DEPTH, [PLAIN_BYTES]))
        return text if len(text.encode("utf-8")) <= PLAIN_BYTES else None
    except Exception:  # classes of the block decide what fails here
        return None


def _tagged(value, depth, room):  # noqa: PLR0911 - one for each kind
    kind = type(value)
    room[0] -= 1 + (len(value) if kind in _SIZED else 0)
    if room[0] < 0 or not depth:
        raise ValueError("too large")
    if value is None or kind in (bool, str):
        return value
    if kind is int and value.bit_length() <= _PLAIN_BITS:
        room[0] -= value.bit_length() * 3 // 10
        return value
    if kind is float:
        room[0] -= 2
        return value if value - value == 0 else {"float": repr(value)}
    if kind is complex:
        return {"complex": [_tagged(value.real, depth, room), _tagged(value.imag, depth, room)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is dict:
        return {"dict": [[_tagged(each, depth - 1, room) for each in items] for items in (value, value.values())]}
    if kind in _SIZED:
        items = [_tagged(each, depth - 1, room) for each in value]
        return items if kind is list else {kind.__name__: items}
    if isinstance(value, sys.modules["numpy"].generic) and value.dtype.kind in "biufcSU":
        scalar = value.item()
        if type(scalar) in _SCALARS:
            return _tagged(scalar, depth, room)
    raise TypeError("not plain")


def _joined(text):
    return "\n".join(text.splitlines()) if "\n" in text else "".join([text])


def _is_plain(value, depth):
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind not in (list, tuple, dict) or not depth or len(value) > MAX_ITEMS:
        return False
    items = value if kind is not dict else [*value, *value.values()]
    return all(_is_plain(item, depth - 1) for item in items)
