"""The text of a value that a cell shows, where IPython and `repr` agree; or where there is no IPython."""

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


def text_like_repr(value):
    """Return the `repr` of a value if IPython shows the same text, else None.

    Args:
        value: The value.
    """
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
    """Return the text of a value as IPython would show it, as far as the standard library can.

    Args:
        value: The value.
    """
    if isinstance(value, type):
        module, name = value.__module__, value.__qualname__
        return name if module in ("builtins", "exceptions") else "%s.%s" % (module, name)
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        import pprint

        return pprint.pformat(value, width=WIDTH + 1, sort_dicts=False)
    return _joined(repr(value))


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
