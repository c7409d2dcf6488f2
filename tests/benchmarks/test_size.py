"""The size of the project stays within its budget, and is measured as it should be."""

import json

import pytest

SOURCE = '''"""About the module."""

import os  # for its name


def f(x):
    """About the function.

    In two paragraphs.
    """
    # why
    text = """one
two"""
    return (lambda y: y)(x); os.name
'''


@pytest.fixture
def size(load):
    """The module that measures."""
    return load("size")


def test_the_project_is_within_its_budget(size):
    assert size.over_budget(size.static_sizes()) == []


def test_a_value_above_its_budget_is_named(size):
    most = json.loads(size.BUDGET.read_text())["public names"]["most"]
    (line,) = size.over_budget({"public names": most + 1})
    assert line.startswith(
        f"public names: {most + 1} is above the budget of {most}. Make it smaller, or raise the budget"
    )


def test_lines_and_statements_leave_out_comments_and_docstrings(size):
    assert size.code_lines(SOURCE) == 5
    assert size.statements(SOURCE) == 6  # import, def, assignment, return, lambda, os.name


def test_folders_that_import_each_other_are_found_on_each_level(size, monkeypatch, tmp_path):
    monkeypatch.setattr(size, "ROOT", tmp_path)
    files = {
        "a/x/one.py": "from autogen_codeact.b.two import name",
        "a/y/three.py": "from ..x import one",
        "b/two.py": "def f():\n    from autogen_codeact.a.y import three",
        "b/__init__.py": "from autogen_codeact.a.x.one import name",
        "c/four.py": "import autogen_codeact.a.x.one",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert size.mutual_imports([tmp_path / name for name in files]) == {("a", "b")}
