"""AutoGen's `functions=[…]` as a module: its source does in a fresh interpreter what the functions do here."""

from __future__ import annotations

import functools
import importlib.util
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import (
    Alias,
    FunctionWithRequirements,
    FunctionWithRequirementsStr,
    ImportFromModule,
    with_requirements,
)

from autogen_codeact.executors.functions_module import module_options
from codeact_sandbox.types.options import check_module_name
from tests.cases import case


def build_functions_source(functions: list[Any]) -> str:
    return str(module_options(functions)["functions_source"])


def required_packages(functions: list[Any]) -> list[str]:
    return list(module_options(functions)["functions_packages"])


def passthrough(*_: Any, **__: Any) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return ("wrapped", function(*args, **kwargs))

        return wrapper

    return decorate


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b  # a comment does not travel


@with_requirements(
    python_packages=["numpy>=1", "pandas"],
    global_imports=[
        "math",
        Alias("collections", "c"),
        ImportFromModule("os.path", ["join", Alias("basename", "base")]),
    ],
)
def count(text: str, *, key: Callable[[str], str] = str.lower) -> dict[str, int]:
    """Count letters.

    Args:
        text: With "quotes" and a \\ backslash.
    """
    assert math.pi
    assert base(join("a", "b")) == "b"  # noqa: F821
    return dict(c.Counter(map(key, text)))  # noqa: F821


@passthrough(
    "a",
    # a comment with def inside
    b={"@": 1},
)
@passthrough()
async def fetch(x):
    return x


def run(tmp_path: Path, source: str, code: str) -> str:
    (tmp_path / "functions.py").write_text(source, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert process.stderr == ""
    return process.stdout.strip()


class TestSource:
    def test_the_module_in_full(self):
        assert build_functions_source([add, fetch]) == (
            "from __future__ import annotations\n\n\n"
            "def add(a: int, b: int=2) -> int:\n"
            '    """Add two numbers."""\n'
            "    return a + b\n\n\n"
            "async def fetch(x):\n"
            "    return x\n"
        )

    def test_source_of_the_module_runs(self, tmp_path: Path):
        source = build_functions_source([add, count, fetch])
        code = "import asyncio, functions as f; print(f.add(1), f.count('aAb'), asyncio.run(f.fetch(3)))"
        assert run(tmp_path, source, code) == "3 {'a': 2, 'b': 1} 3"

    def test_imports_once_in_the_order_given_and_future_first(self):
        @with_requirements(global_imports=["os", "sys"])
        def one(): ...

        @with_requirements(global_imports=["sys", "json", ImportFromModule("a.b", ("x", Alias("y", "z")))])
        def two(): ...

        first = build_functions_source([one, two])
        assert first.split("\n\n\n")[0].splitlines() == [
            "from __future__ import annotations",
            "import os",
            "import sys",
            "import json",
            "from a.b import x, y as z",
        ]
        assert first == build_functions_source([one, two])

    def test_future_annotations_only_where_the_function_was_compiled_with_them(self, tmp_path: Path):
        module = tmp_path / "plain_annotations.py"
        module.write_text("def f(a: int) -> int:\n    return a\n")
        namespace: dict[str, Any] = {}
        exec(compile(module.read_text(), str(module), "exec", dont_inherit=True), namespace)
        assert build_functions_source([namespace["f"]]) == "def f(a: int) -> int:\n    return a\n"

    def test_nested_functions_move_to_the_margin_with_their_strings_as_they_are(self, tmp_path):
        # fmt: off
        def text(name: str) -> str:
            """Docstring
            of two lines."""
            # a comment
            plain = """
  less
                more
            """
            formatted = f"""
            {name}
no margin"""
            joined = (
                "a"
                "b"
            )
        # a comment at a place where no other tool would keep it
            return plain + formatted + joined + \
                "é"
        # fmt: on

        source = build_functions_source([text])
        assert "\ndef text(name: str) -> str:\n    " in source
        code = "import functions; print(ascii(functions.text('x')))"
        assert run(tmp_path, source, code) == ascii(text("x"))

    def test_odd_line_ends_and_tabs(self, tmp_path: Path):
        """Python ends a line at a newline only; other tools also at form feeds and Unicode's separators."""
        file = tmp_path / "odd.py"
        file.write_text(
            "def make():\n\t@staticmethod\n\tdef odd():\n"
            "\t\ta = 'x\u2028y\x0cz'\n\t\tif a:\n\t\t\treturn a\n\treturn odd\n",
            encoding="utf-8",
        )
        spec = importlib.util.spec_from_file_location("odd", file)
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        source = build_functions_source([module.make().__func__])
        assert run(tmp_path, source, "import functions; print(ascii(functions.odd()))") == ascii("x\u2028y\x0cz")

    def test_recursion_in_a_nested_function_is_no_captured_value(self, tmp_path: Path):
        def factorial(n):
            return 1 if n < 2 else n * factorial(n - 1)

        def twice(n):
            return 2 * factorial(n)

        source = build_functions_source([twice, factorial])
        assert run(tmp_path, source, "import functions; print(functions.twice(4))") == "48"

    def test_a_module_that_is_imported_for_the_function_is_no_captured_value(self, tmp_path: Path):
        import decimal  # noqa: PLC0415
        import os.path as path  # noqa: PLC0415
        from fractions import Fraction  # noqa: PLC0415

        @with_requirements(
            global_imports=["decimal", Alias("os.path", "path"), ImportFromModule("fractions", ["Fraction"])]
        )
        def half():
            return decimal.Decimal("0.5") == Fraction(1, 2), path.sep

        source = build_functions_source([half])
        assert run(tmp_path, source, "import functions; print(functions.half())") == "(True, '/')"

    def test_function_from_a_string(self, tmp_path: Path):
        function = FunctionWithRequirements.from_str(
            "\ndef shout(text: str) -> str:\n    '''Make it loud.'''\n    return text.upper()\n",
            python_packages=["loud"],
            global_imports=["json"],
        )
        assert isinstance(function, FunctionWithRequirementsStr)
        source = build_functions_source([function])
        assert source.startswith("import json\n\n\ndef shout(")
        assert run(tmp_path, source, "import functions; print(functions.shout('a'))") == "A"
        assert required_packages([function]) == ["loud"]

    def test_the_same_function_twice_is_written_once(self):
        assert build_functions_source([add, add]) == build_functions_source([add])

    def test_module_without_functions_is_empty(self):
        assert build_functions_source([]) == "\n"
        assert required_packages([]) == []


class Holder:
    def method(self):
        return 1

    @staticmethod
    def static(a):
        return a


class TestRefused:
    def test_objects_without_source_are_refused(self) -> None:
        for function, why in [
            (lambda: 1, "`<lambda>`"),
            (len, "`len` is a builtin"),
            (Holder, "`Holder` is a type"),
            (Holder().method, "`method` is a method"),
            (functools.partial(add, 1), "is a partial"),
            ("add", "`'add'` is a str"),
            (None, "`None` is a NoneType"),
        ]:
            with case(function, why):
                with pytest.raises(ValueError, match=re.escape(why)) as caught:
                    build_functions_source([function])
                assert "made with `def`" in str(caught.value)

    def test_functions_that_can_not_be_written_are_refused(self):
        namespace: dict[str, Any] = {}
        exec(compile("def made_up():\n    return 1\n", "made up", "exec"), namespace)

        key, other = "secret", 1

        def uses():
            return key, other

        def make():
            def add(a):
                return a

            return add

        def f(): ...

        f.__name__ = "g"
        for functions, words in [
            ([namespace["made_up"]], "The source of `made_up` can't be found; define it in a file"),
            ([uses], r"`uses` uses `key`, `other` .* give the function as a tool"),
            ([add, make()], "Two functions are called `add`"),
            ([f], "The source of `g` has no function of that name"),
        ]:
            with case(words):
                with pytest.raises(ValueError, match=words) as caught:
                    build_functions_source(functions)
                assert "secret" not in str(caught.value)

    def test_invalid_imports_are_refused(self) -> None:
        @with_requirements(global_imports=["not an import"])
        def f(): ...

        with pytest.raises(ValueError, match=r"The functions make no valid module: .* in `import not an import`"):
            build_functions_source([f])

    def test_invalid_module_names_are_refused(self) -> None:
        for name in ["", "a b", "a.b", "1a", "a-b", "class", "None", "a/b"]:
            with case(name):
                with pytest.raises(ValueError, match="must be an identifier"):
                    check_module_name(name)
                assert check_module_name("functions") == "functions"


def test_static_methods_are_functions(tmp_path: Path):
    source = build_functions_source([Holder.static])
    assert run(tmp_path, source, "import functions; print(functions.static(7))") == "7"


def test_packages_once_in_order():
    @with_requirements(python_packages=["pandas", "scipy"])
    def other(): ...

    assert required_packages([add, count, other, fetch]) == ["numpy>=1", "pandas", "scipy"]
