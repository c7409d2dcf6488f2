"""Find upstream's examples in its installed docstrings and move their imports to this package.

Nothing of upstream's text is kept here: a test reads it from the installed package each time.
"""

import ast
import importlib.util
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PACKAGES = ("autogen_core", "autogen_agentchat", "autogen_ext")
CLASSES = ("CodeExecutorAgent", "DockerCommandLineCodeExecutor")
MOVED = {
    "autogen_agentchat.agents": (
        "autogen_codeact.agents",
        {"ApprovalFuncType", "ApprovalRequest", "ApprovalResponse", "CodeExecutorAgent"},
    ),
    "autogen_ext.code_executors.docker": ("autogen_codeact.executors", {"DockerCommandLineCodeExecutor"}),
}
_DIRECTIVE = re.compile(r"^(?P<indent> *)\.\. (?:code-block|code|sourcecode):: *(?P<language>\w*) *$")


@dataclass(frozen=True)
class Example:
    """A program found in a docstring."""

    name: str
    code: str
    shown: str | None


def installed_examples() -> dict[str, Example]:
    """Every Python program in an installed docstring that names one of the two classes, by name."""
    found: dict[str, Example] = {}
    for owner, docstring in _docstrings():
        for example in _programs(owner, docstring):
            assert example.name not in found, f"two documented objects are called {owner}"
            found[example.name] = example
    return found


def swap_imports(code: str) -> str:
    """The same program with its imports of upstream's classes moved here, and nothing else changed."""
    lines = code.splitlines(keepends=True)
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: -node.lineno):
        target, names = MOVED.get(node.module or "", ("", set()))
        ours = [alias for alias in node.names if alias.name in names]
        if not ours:
            continue
        theirs = [alias for alias in node.names if alias not in ours]
        indent = " " * node.col_offset
        statements = [ast.ImportFrom(target, ours, 0)]
        if theirs:
            statements.insert(0, ast.ImportFrom(node.module, theirs, 0))
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{ast.unparse(s)}\n" for s in statements]
    return "".join(lines)


def transcript(printed: str) -> list[tuple[str, str]]:
    """Who said what, from what AutoGen's `Console` printed or a page shows of it.

    Pages show `- name -`, the installed `Console` prints `- MessageType (name) -`.
    """
    heading = re.compile(r"^-{10} (?:\w+ \()?(\w+)\)? -{10}$", re.MULTILINE)
    headings = list(heading.finditer(printed))
    ends = [m.start() for m in headings[1:]] + [len(printed)]
    return [(m[1], printed[m.end() : end].strip()) for m, end in zip(headings, ends, strict=True)]


def _docstrings() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        for path in sorted(Path(spec.submodule_search_locations[0]).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if not any(name in source for name in CLASSES):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node) or ""
                    if any(name in text for name in CLASSES):
                        yield getattr(node, "name", path.stem), text


def _programs(owner: str, docstring: str) -> Iterator[Example]:
    blocks = [*_code_blocks(docstring), ("", "")]
    programs = [pair for pair in pairwise(blocks) if pair[0][0].startswith("py")]
    for number, ((_, code), (next_language, next_text)) in enumerate(programs, start=1):
        yield Example(f"{owner}#{number}", code, next_text if next_language == "text" else None)


def _code_blocks(docstring: str) -> Iterator[tuple[str, str]]:
    lines = docstring.splitlines()
    for start, line in enumerate(lines):
        if directive := _DIRECTIVE.match(line):
            body = []
            for inner in lines[start + 1 :]:
                if inner.strip() and len(inner) - len(inner.lstrip()) <= len(directive["indent"]):
                    break
                body.append(inner)
            yield directive["language"], textwrap.dedent("\n".join(body)).strip("\n") + "\n"
