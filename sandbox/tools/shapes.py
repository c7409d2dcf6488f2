"""From JSON schema to Python: the text of a type, how to build its values, and the classes that it needs."""

from __future__ import annotations

import builtins
import json
import keyword
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from autogen_codeact.sandbox.tools.classes import ClassText, Field, data_class, enum_class, typed_dict
from autogen_codeact.sandbox.tools.schema import PYTHON

Spec = tuple[Any, ...] | None
"""How `_build` of sandbox/runner/tool_values.py makes a value; None for what JSON has as it is."""

MAX_DEPTH = 50
# Definitions that refer to each other could expand to a text larger than memory.
MAX_TYPE_CHARS = 2000
MAX_NAME_CHARS = 80
MAX_CLASSES = 500

_FORMATS = {
    "date-time": ("datetime", "datetime"),
    "date": ("date", "date"),
    "time": ("time", "time"),
    "duration": ("timedelta", "timedelta"),
    "path": ("Path", "path"),
    "file-path": ("Path", "path"),
    "directory-path": ("Path", "path"),
    "uuid": ("UUID", "uuid"),
    "decimal": ("Decimal", "decimal"),
    "binary": ("bytes", "bytes"),
    "base64": ("bytes", "base64"),
}
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_KEYS = {"int": ("int",), "float": ("float",)}
_OWN_NAMES = frozenset(
    {"Any", "Literal", "Decimal", "Path", "UUID", "date", "datetime", "time", "timedelta", "TypedDict"}
    | {"ToolError", "ToolRefused"}
)
_REFERENCE = re.compile(r'"\$ref": "#/(?:\$defs|definitions)/([^"]+)"')
# Enum treats these names specially.
_RESERVED = re.compile(r"_.*_|mro")


@dataclass(frozen=True)
class Shape:
    """What a schema is in Python.

    Args:
        text: The type, as an annotation.
        spec: How to build a value.
        nullable: Whether None is one of the values.
    """

    text: str
    spec: Spec = None
    nullable: bool = False


ANY = Shape("Any", nullable=True)


class Names:
    """Names in the sandbox: no two things get the same one."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = dict.fromkeys(_OWN_NAMES, "")

    def copy(self) -> Names:
        """The same names, for who may take more of them in vain."""
        names = Names()
        names._taken = dict(self._taken)
        return names

    def tool(self, name: str, origin: str) -> None:
        """Take a name for a tool.

        Args:
            name: The name.
            origin: Where the tool comes from, for the error.

        Raises:
            ValueError: It is taken.
        """
        if name in self._taken:
            raise ValueError(
                f"Two tools, or a tool and a class, would be called `{name}` in the sandbox; the second is {origin}. "
                "Rename one (a workbench has tool_overrides, a FunctionTool takes name=)."
            )
        self._taken[name] = f"tool {origin}"

    def of_class(self, wanted: str, prefix: str, meaning: str) -> str:
        """Take a name for a class, or the one that the same class has already.

        Args:
            wanted: The name that it should have.
            prefix: What is put before it where another class has it.
            meaning: What the class is; two with the same meaning are the same.
        """
        base = identifier(wanted).lstrip("_") or "Value"
        base = identifier(base[:MAX_NAME_CHARS])
        choices = chain([base, prefix + base], (f"{prefix}{base}{number}" for number in count(2)))
        name = next(each for each in choices if self._taken.get(each, meaning) == meaning)
        self._taken[name] = meaning
        return name


def identifier(text: str) -> str:
    """Make a name that Python takes and that hides no builtin, as near to the text as can be.

    Args:
        text: Any text, such as the name of an MCP tool.
    """
    name = _with_letters(text)
    return f"{name}_" if not usable(name) else name


def _with_letters(text: str) -> str:
    # Python normalizes identifiers to NFKC, and some letters of `re` are not identifier characters in it.
    text = unicodedata.normalize("NFKC", text)
    name = "".join(char if f"a{char}".isidentifier() else "_" for char in text) or "_"
    return name if name.isidentifier() else f"_{name}"


def usable(name: str) -> bool:
    """Whether it is an identifier that is neither a keyword nor a builtin."""
    return name.isidentifier() and not keyword.iskeyword(name) and not hasattr(builtins, name)


def camel(text: str) -> str:
    """Make the name of a class out of another name."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", text) if part) or "Value"


class Shapes:
    """The types of one tool.

    Args:
        tool: Its name.
        names: The names that the stubs of all tools share.
        definitions: The schema's `$defs`.
        python: Whether the schema was made from Python types, so that a date is a `date` and not a string; only then is our own
            keyword in it looked at.
    """

    def __init__(self, tool: str, names: Names, definitions: Mapping[str, Any], *, python: bool) -> None:
        self._tool = tool
        self._names = names
        self._definitions = definitions
        self._python = python
        self._named: dict[str, str] = {}
        self._aliases: dict[str, Shape] = {}
        self._written: dict[str, tuple[str, set[str]]] = {}
        self._depth = 0
        self._members: dict[str, dict[str, str]] = {}
        self.classes: dict[str, ClassText] = {}

    def of(self, schema: Any, hint: str = "Value") -> Shape:
        """Find out what a schema is.

        Args:
            schema: The schema, or a boolean.
            hint: What a class is called that has no name of its own.
        """
        if not isinstance(schema, Mapping) or self._depth >= MAX_DEPTH:
            return ANY
        self._depth += 1
        try:
            shape = self._of(schema, hint)
        finally:
            self._depth -= 1
        return shape if len(shape.text) <= MAX_TYPE_CHARS else ANY

    def _of(self, schema: Mapping[str, Any], hint: str) -> Shape:  # noqa: PLR0911 - one for each form that a schema has
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]).rpartition("/")[2])
        for several in ("anyOf", "oneOf"):
            if schema.get(several) and isinstance(schema[several], list):
                return _union([self.of(each, hint) for each in schema[several]])
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
            return self.of(schema["allOf"][0], hint)
        if "const" in schema:
            return _literal([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return self._enum(schema, hint)
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self.of({**schema, "type": each}, hint) for each in kind])
        return self._typed(kind, schema, hint)

    def _typed(self, kind: Any, schema: Mapping[str, Any], hint: str) -> Shape:
        if not isinstance(kind, str | None):
            return ANY
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, hint)
        if kind == "array":
            return self._array(schema, hint)
        if kind == "string" and self._python and schema.get("format") in _FORMATS:
            text, spec = _FORMATS[schema["format"]]
            return Shape(text, (spec,))
        return Shape(_SCALARS[kind], nullable=kind == "null") if kind in _SCALARS else ANY

    def _referenced(self, name: str) -> Shape:
        if name in self._named:
            return self._class_shape(self._named[name], self._definitions[name])
        schema = self._definitions.get(name)
        if not isinstance(schema, Mapping):  # McpWorkbench leaves the definitions out
            return Shape("dict[str, Any]")
        if not self._is_class(schema):
            if name not in self._aliases:
                self._aliases[name] = ANY  # for recursive references
                self._aliases[name] = self.of(schema, name)
            return self._aliases[name]
        taken = self._names.of_class(name, camel(self._tool), self._meaning(name))
        self._named[name] = taken
        self._define(taken, schema)
        return self._class_shape(taken, schema)

    def _class_shape(self, name: str, schema: Mapping[str, Any]) -> Shape:
        return Shape(name, ("enum" if "enum" in schema else "class", name))

    def _object(self, schema: Mapping[str, Any], hint: str) -> Shape:
        if not self._is_class(schema):
            keys = self._known(schema).get("keys")
            key = self.of(keys) if keys else Shape("str")
            spec_of_key = key.spec or _KEYS.get(key.text)
            values = self.of(schema.get("additionalProperties", True), hint)
            spec = ("dict", spec_of_key, values.spec) if spec_of_key or values.spec else None
            return Shape(f"dict[{key.text}, {values.text}]", spec)
        wanted = str(schema.get("title") or camel(hint))
        name = self._names.of_class(wanted, camel(self._tool), _fingerprint(schema))
        if name not in self.classes:
            self._define(name, schema)
        return Shape(name, ("class", name))

    def _array(self, schema: Mapping[str, Any], hint: str) -> Shape:
        kind = self._known(schema).get("kind")
        if schema.get("prefixItems") and isinstance(schema["prefixItems"], list):
            items = [self.of(each, hint) for each in schema["prefixItems"]]
            return Shape(f"tuple[{', '.join(item.text for item in items)}]", ("tuple", *(item.spec for item in items)))
        item = self.of(schema.get("items", True), hint)
        if kind == "tuple":
            return Shape(f"tuple[{item.text}, ...]", ("tuple", item.spec, "..."))
        if kind == "frozenset" or (self._python and schema.get("uniqueItems")):
            kind = kind or "set"
            return Shape(f"{kind}[{item.text}]", (kind, item.spec))
        return Shape(f"list[{item.text}]", ("list", item.spec) if item.spec else None)

    def _enum(self, schema: Mapping[str, Any], hint: str) -> Shape:
        if not self._is_class(schema):
            return _literal(schema["enum"])
        name = self._names.of_class(str(schema.get("title") or hint), camel(self._tool), _fingerprint(schema))
        if name not in self.classes:
            self._define(name, schema)
        return Shape(name, ("enum", name))

    def _is_class(self, schema: Mapping[str, Any]) -> bool:
        if len(self.classes) >= MAX_CLASSES:
            return False
        if "enum" in schema:
            members = self._known(schema).get("members", ())
            return bool(members) and all(usable(name) and not _RESERVED.fullmatch(name) for name, _ in members)
        properties = schema.get("properties")
        return bool(properties) and isinstance(properties, Mapping) and schema.get("type", "object") == "object"

    def _known(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The value of our own keyword; ignored in third-party schemas."""
        known = schema.get(PYTHON) if self._python else None
        return known if isinstance(known, dict) else {}

    def _meaning(self, name: str) -> str:
        """The definition with all that it refers to, so that two classes of one name can be told apart."""
        reached: dict[str, str] = {}
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in reached or each not in self._definitions:
                continue
            if each not in self._written:
                text = _fingerprint(self._definitions[each])
                self._written[each] = (text, set(_REFERENCE.findall(text)))
            reached[each], referred = self._written[each]
            waiting += referred
        return _fingerprint(reached)

    def _define(self, name: str, schema: Mapping[str, Any]) -> None:
        self.classes[name] = ClassText(name, "", {})  # inserted before the classes of its fields
        if "enum" in schema:
            members = self._known(schema)["members"]
            self.classes[name] = enum_class(name, schema, members, self._known(schema).get("base"))
            self._members[name] = {repr(value): f"{name}.{member}" for member, value in members}
            return
        needed = required_by(schema)
        taken: dict[str, int] = {}
        fields = [self._field(key, each, taken, needed=key in needed) for key, each in schema["properties"].items()]
        write = typed_dict if self._known(schema).get("kind") == "typed_dict" else data_class
        self.classes[name] = write(name, schema, sorted(fields, key=lambda field: not field.needed))

    def _field(self, key: str, schema: Any, taken: dict[str, int], *, needed: bool) -> Field:
        shape = self.of(schema, key)
        members = self._members.get(shape.text.removesuffix(" | None"), {})
        attribute = parameter_name(key)
        taken[attribute] = number = taken.get(attribute, 0) + 1
        if number > 1:
            attribute = f"{attribute}_{number}"
            taken[attribute] = taken.get(attribute, 0) + 1
        return Field(attribute, key, shape, schema if isinstance(schema, Mapping) else {}, needed, members)


def parameter_name(key: str) -> str:
    """Make the name of a parameter or field, as near to its key as can be."""
    name = _with_letters(key)
    if name.startswith("__"):  # Python treats these names specially
        name = _with_letters(name.lstrip("_"))
    return f"{name}_" if keyword.iskeyword(name) else name


def definitions_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that a schema may refer to, by name."""
    found: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        if isinstance(schema.get(key), Mapping):
            found |= schema[key]
    return found


def required_by(schema: Mapping[str, Any]) -> set[str]:
    """The names that a schema requires."""
    needed = schema.get("required")
    return {each for each in needed if isinstance(each, str)} if isinstance(needed, list | tuple) else set()


def _literal(values: list[Any]) -> Shape:
    if not all(value is None or isinstance(value, str | int | bool) for value in values):
        return ANY
    return Shape(f"Literal[{', '.join(map(repr, values))}]", nullable=None in values)


def _union(shapes: list[Shape]) -> Shape:
    unique = list(dict.fromkeys(shapes))
    if len(unique) == 1:
        return unique[0]
    if any(shape.text == "Any" for shape in unique):
        return ANY
    nullable = any(shape.nullable for shape in unique)
    some = [shape for shape in unique if shape.text != "None"]
    texts = dict.fromkeys(shape.text.removesuffix(" | None") if shape.nullable else shape.text for shape in some)
    specs = [shape.spec for shape in some]
    spec = ("union", *specs) if any(specs) else None
    return Shape(" | ".join([*texts, *(["None"] if nullable else [])]), specs[0] if len(some) == 1 else spec, nullable)


def _fingerprint(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, default=str)
