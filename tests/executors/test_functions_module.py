"""AutoGen's `functions=[…]` as a module: its source does in a fresh interpreter what the functions do here."""

from __future__ import annotations

import functools
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
    ImportFromModule,
    with_requirements,
)

from autogen_codeact.executors.functions_module import module_options
from tests.cases import case


def build_functions_source(functions: list[Any]) -> str:
    return str(module_options(functions)["functions_source"])


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
    def test_source_of_the_module_runs(self, tmp_path: Path):
        source = build_functions_source([add, count, fetch])
        code = "import asyncio, functions as f; print(f.add(1), f.count('aAb'), asyncio.run(f.fetch(3)))"
        assert run(tmp_path, source, code) == "3 {'a': 2, 'b': 1} 3"


class Holder:
    def method(self):
        return 1

    @staticmethod
    def static(a):
        return a


class TestRefused:
    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (lambda: 1, "`<lambda>`"),
            (len, "`len` is a builtin"),
            (Holder, "`Holder` is a type"),
            (Holder().method, "`method` is a method"),
            (functools.partial(add, 1), "is a partial"),
            ("add", "`'add'` is a str"),
            (None, "`None` is a NoneType"),
        ],
    )
    def test_objects_without_source_are_refused(self, function: Any, why: Any) -> None:
        with pytest.raises(ValueError, match=re.escape(why)) as caught:
            build_functions_source([function])
        assert "made with `def`" in str(caught.value)

    def test_functions_that_can_not_be_written_are_refused(self):
        namespace: dict[str, Any] = {}
        exec(compile("def made_up():\n    return 1\n", "made up", "exec"), namespace)

        def make():
            def add(a):
                return a

            return add

        def f(): ...

        f.__name__ = "g"
        for functions, words in [
            ([namespace["made_up"]], "The source of `made_up` can't be found; define it in a file"),
            ([add, make()], "Two functions are called `add`"),
            ([f], "The source of `g` has no function of that name"),
        ]:
            with case(words), pytest.raises(ValueError, match=words):
                build_functions_source(functions)
