"""From JSON schema to Python: the text of a type, how to build its values, and the classes that it needs."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .schema import PYTHON

Spec = tuple[Any, ...] | None
"""How `_build` of executors/runner/tool_values.py makes a value; None for what JSON has as it is."""

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
_KEYS = {"integer": ("int",), "number": ("float",)}
_OWN_NAMES = frozenset(
    {"Any", "Literal", "Decimal", "Path", "UUID", "date", "datetime", "time", "timedelta", "TypedDict"}
)


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


@dataclass(frozen=True)
class ClassText:
    """A class that stubs need.

    Args:
        name: Its name.
        shown: Its definition for a reader.
        source: Its definition for the sandbox.
    """

    name: str
    shown: str
    source: str


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
        base = identifier(wanted)
        choices = [base, prefix + base, *(f"{prefix}{base}{number}" for number in range(2, 1000))]
        name = next(each for each in choices if self._taken.get(each, meaning) == meaning)
        self._taken[name] = meaning
        return name


def identifier(text: str) -> str:
    """Make a name that Python takes and that hides no builtin, as near to the text as can be.

    Args:
        text: Any text, such as the name of an MCP tool.
    """
    name = re.sub(r"\W", "_", text) or "_"
    if name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if not usable(name) else name


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
        python: Whether the schema was made from Python types, so that a date is a `date` and not a string.
    """

    def __init__(self, tool: str, names: Names, definitions: Mapping[str, Any], *, python: bool) -> None:
        self._tool = tool
        self._names = names
        self._definitions = definitions
        self._python = python
        self._named: dict[str, str] = {}
        self._members: dict[str, dict[str, str]] = {}
        self.classes: dict[str, ClassText] = {}

    def of(self, schema: Any, hint: str = "Value") -> Shape:  # noqa: PLR0911 - one for each form that a schema has
        """Find out what a schema is.

        Args:
            schema: The schema, or a boolean.
            hint: What a class is called that has no name of its own.
        """
        if not isinstance(schema, Mapping):
            return ANY
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]).rpartition("/")[2])
        for several in ("anyOf", "oneOf"):
            if schema.get(several):
                return _union([self.of(each, hint) for each in schema[several]])
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1:
            return self.of(schema["allOf"][0], hint)
        if "const" in schema:
            return _literal([schema["const"]])
        if "enum" in schema:
            return self._enum(schema, hint)
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union([self.of({**schema, "type": each}, hint) for each in kind])
        return self._typed(kind, schema, hint)

    def _typed(self, kind: Any, schema: Mapping[str, Any], hint: str) -> Shape:
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
        if schema is None:  # McpWorkbench leaves the definitions out
            return Shape("dict[str, Any]")
        if not _is_class(schema):
            return self.of(schema, name)
        taken = self._names.of_class(name, camel(self._tool), self._meaning(name))
        self._named[name] = taken
        self._define(taken, schema)
        return self._class_shape(taken, schema)

    def _class_shape(self, name: str, schema: Mapping[str, Any]) -> Shape:
        return Shape(name, ("enum" if "enum" in schema else "class", name))

    def _object(self, schema: Mapping[str, Any], hint: str) -> Shape:
        if not schema.get("properties"):
            keys = _KEYS.get(_python(schema).get("keys", {}).get("type"))
            key = self.of(_python(schema)["keys"]) if _python(schema).get("keys") else Shape("str")
            values = self.of(schema.get("additionalProperties", True), hint)
            spec = ("dict", key.spec or keys, values.spec) if key.spec or keys or values.spec else None
            return Shape(f"dict[{key.text}, {values.text}]", spec)
        wanted = str(schema.get("title") or camel(hint))
        name = self._names.of_class(wanted, camel(self._tool), _fingerprint(schema))
        if name not in self.classes:
            self._define(name, schema)
        return Shape(name, ("class", name))

    def _array(self, schema: Mapping[str, Any], hint: str) -> Shape:
        kind = _python(schema).get("kind")
        if schema.get("prefixItems"):
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
        if not _is_class(schema):
            return _literal(list(schema["enum"]))
        name = self._names.of_class(str(schema.get("title") or hint), camel(self._tool), _fingerprint(schema))
        if name not in self.classes:
            self._define(name, schema)
        return Shape(name, ("enum", name))

    def _meaning(self, name: str) -> str:
        """The definition with all that it refers to, so that two classes of one name can be told apart."""
        reached: dict[str, Any] = {}
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in reached or each not in self._definitions:
                continue
            reached[each] = self._definitions[each]
            waiting += re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(self._definitions[each], default=str))
        return _fingerprint(reached)

    def _define(self, name: str, schema: Mapping[str, Any]) -> None:
        self.classes[name] = ClassText(name, "", "")  # its place is before those of its fields
        if "enum" in schema:
            self.classes[name] = _enum_class(name, schema)
            self._members[name] = {repr(value): f"{name}.{member}" for member, value in _python(schema)["members"]}
            return
        needed = set(schema.get("required", ()))
        fields = [self._field(key, each, needed=key in needed) for key, each in schema["properties"].items()]
        write = _typed_dict_class if _python(schema).get("kind") == "typed_dict" else _data_class
        self.classes[name] = write(name, schema, sorted(fields, key=lambda field: not field.needed))

    def _field(self, key: str, schema: Any, *, needed: bool) -> _Field:
        shape = self.of(schema, key)
        members = self._members.get(shape.text.removesuffix(" | None"), {})
        return _Field(parameter_name(key), key, shape, schema if isinstance(schema, Mapping) else {}, needed, members)


@dataclass(frozen=True)
class _Field:
    attribute: str
    key: str
    shape: Shape
    schema: Mapping[str, Any]
    needed: bool
    members: Mapping[str, str]

    @property
    def sent(self) -> str:
        if self.schema.get("readOnly"):
            return "never"
        return "given" if not self.needed and self.schema.get("default") is None else "always"

    @property
    def default(self) -> str:
        """Its default as the sandbox has it."""
        value = self.schema.get("default")
        if value is None:
            return "None"
        if self.shape.spec is None and not isinstance(value, list | dict):
            return repr(value)
        made = repr(value) if self.shape.spec is None else f"_build({self.shape.spec!r}, {value!r})"
        return f"_dataclasses.field(default_factory=lambda: {made})"

    @property
    def signs(self) -> tuple[str, list[Any]] | None:
        """Its key and the values that tell its class from others."""
        values = self.schema.get("enum") or ([self.schema["const"]] if "const" in self.schema else None)
        return (self.key, list(values)) if values else None


def _data_class(name: str, schema: Mapping[str, Any], fields: list[_Field]) -> ClassText:
    doc = _docstring(schema.get("description"))
    shown = ["@dataclass", f"class {name}:", *doc]
    source = ["@_dataclasses.dataclass", f"class {name}:", *doc]
    for field in fields:
        comment = _comment(field.schema.get("description"))
        default = "" if field.needed else f" = {_shown_default(field)}"
        shown.append(f"    {field.attribute}: {field.shape.text}{default}{comment}")
        source.append(f"    {field.attribute}: {field.shape.text!r}" + ("" if field.needed else f" = {field.default}"))
    return ClassText(name, "\n".join(shown), "\n".join(source + _tables(name, fields)))


def _typed_dict_class(name: str, schema: Mapping[str, Any], fields: list[_Field]) -> ClassText:
    doc = _docstring(schema.get("description"))
    texts = {f.key: f.shape.text if f.needed else f"NotRequired[{f.shape.text}]" for f in fields}
    if all(key.isidentifier() and not keyword.iskeyword(key) for key in texts):
        shown = [f"class {name}(TypedDict):", *doc, *(f"    {key}: {text}" for key, text in texts.items())]
    else:
        shown = [f"{name} = TypedDict({name!r}, {{{', '.join(f'{key!r}: {text}' for key, text in texts.items())}}})"]
    source = [f"class {name}(dict):", *(doc or ["    pass"])]
    return ClassText(name, "\n".join(shown), "\n".join(source + _tables(name, fields)))


def _tables(name: str, fields: list[_Field]) -> list[str]:
    rows = tuple((f.attribute, f.key, f.shape.spec, f.sent) for f in fields)
    signs = tuple(f.signs for f in fields if f.signs)
    needed = tuple(f.key for f in fields if f.needed)
    return [f"{name}._codeact_fields = {rows!r}", f"{name}._codeact_signs = {(needed, signs)!r}"]


def _enum_class(name: str, schema: Mapping[str, Any]) -> ClassText:
    members, base = _python(schema)["members"], _python(schema).get("base")
    doc = _docstring(schema.get("description"))
    body = [*doc, *(f"    {member} = {value!r}" for member, value in members)]
    bases = f"{base}, Enum" if base else "Enum"
    return ClassText(
        name,
        "\n".join([f"class {name}({bases}):", *body]),
        "\n".join([f"class {name}({bases.replace('Enum', '_enum.Enum')}):", *body]),
    )


def _docstring(text: Any) -> list[str]:
    return [f"    {docstring(str(text), 4)}"] if text else []


def docstring(text: str, margin: int) -> str:
    """Write a docstring.

    Args:
        text: What it says.
        margin: Columns in front of each line but the first.
    """
    safe = text.strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = safe[:-1] + '\\"'
    lines = safe.splitlines()
    if len(lines) <= 1:
        return f'"""{safe}"""'
    return '"""' + "\n".join(
        [lines[0], *(" " * margin + line if line else "" for line in lines[1:]), " " * margin + '"""']
    )


def _comment(text: Any) -> str:
    return f"  # {' '.join(str(text).split())}" if text else ""


def _shown_default(field: _Field) -> str:
    """Its default for a reader; `...` where only the host knows it."""
    text = repr(field.schema["default"]) if "default" in field.schema else "..."
    return field.members.get(text, text)


def parameter_name(key: str) -> str:
    """Make the name of a parameter or field, as near to its key as can be."""
    name = re.sub(r"\W", "_", key)
    if not name or name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def _is_class(schema: Mapping[str, Any]) -> bool:
    if "enum" in schema:
        members = _python(schema).get("members", ())
        return bool(members) and all(usable(name) for name, _ in members)
    return bool(schema.get("properties")) and schema.get("type", "object") == "object"


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


def _python(schema: Mapping[str, Any]) -> dict[str, Any]:
    known = schema.get(PYTHON)
    return known if isinstance(known, dict) else {}


def _fingerprint(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, default=str)
