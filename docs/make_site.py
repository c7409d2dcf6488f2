"""Make the site in `build/site`: the pages of docs/, a reference from the docstrings, and llms.txt. `make docs` runs it.

The pages are copied to `build/pages`, where links to files of the repository become links to its address; docs/ stays what a
repository shows. Afterwards each link and anchor in the built pages is looked up.
"""

import ast
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
PAGES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
CONFIG = ROOT / "zensical.toml"
COPIED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
COPIED["samples/README.md"] = "samples.md"
PACKAGES = {
    "sandbox": ["codeact_sandbox"],
    "agents": ["autogen_codeact.agents", "autogen_codeact.teams"],
    "executors": ["autogen_codeact.executors"],
    "runs": ["autogen_codeact.runs", "autogen_codeact.batch", "autogen_codeact.viewer", "autogen_codeact.telemetry"],
}
"""The pages of the reference, and their packages."""
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)#\s]+)")


def main() -> int:
    """Build the site; return 1 if a link leads nowhere."""
    project = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "*.txt", "__pycache__"))
    for source in [*COPIED, *(f"docs/{path.name}" for path in PAGES.glob("*.md"))]:
        target = COPIED.get(source, source.removeprefix("docs/"))
        (PAGES / target).write_text(page_of_site(source, project["extra"]["social"][0]["link"]), encoding="utf-8")
    (PAGES / "reference").mkdir()
    for name, packages in PACKAGES.items():
        (PAGES / "reference" / f"{name}.md").write_text(reference(name, packages), encoding="utf-8")
    zensical = Path(sys.executable).parent / "zensical"
    command = [zensical, "build", "--clean", "--strict", "--config-file", CONFIG]
    built = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False
    )
    said = [
        line for line in built.stdout.splitlines() if "appear in the function" not in line and "No type or" not in line
    ]
    if built.returncode:
        print(*said, sep="\n", file=sys.stderr)
        return 1
    write_texts(project)
    broken = broken_links(project["site_url"])
    print(*broken, sep="\n", file=sys.stderr)
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages, {len(broken)} broken links")
    return 1 if broken else 0


def page_of_site(source: str, repository: str) -> str:
    """Return a page with links that are right in the site, and a blank line before each list, which Python-Markdown wants."""
    folder = posixpath.dirname(source)

    def link(found: re.Match[str]) -> str:
        if "://" in found[1] or found[1].startswith("mailto:"):
            return found[1]
        target = posixpath.normpath(posixpath.join(folder, found[1]))
        if target in COPIED:
            return COPIED[target]
        if target.startswith("docs/") and (ROOT / target).is_file():
            return target.removeprefix("docs/")
        return f"{repository}/blob/main/{target}"

    def prose(text: str) -> str:
        text = LINK.sub(link, text)
        return re.sub(r"^((?![-*] |\d+\. |\s|$).+)\n(?=(?:[-*]|\d+\.) )", r"\1\n\n", text, flags=re.MULTILINE)

    text, end, parts = (ROOT / source).read_text(encoding="utf-8"), 0, []
    for fence in FENCE.finditer(text):
        parts += [prose(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, prose(text[end:])])


def reference(name: str, packages: list[str]) -> str:
    """Return a page of the reference: each public name, where it is defined."""
    lines = [f"# Reference: {name}\n"]
    for package in packages:
        tree = tree_of(package)
        # Names are imported in `if TYPE_CHECKING`, or defined here and listed.
        blocks = [node.body for node in tree.body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
        homes = sorted((alias.name, str(node.module)) for node in imports for alias in node.names)
        if not blocks:
            (named,) = (
                node.value for node in tree.body if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node)
            )
            homes = [(each, package) for each in sorted(ast.literal_eval(named))]
        lines += [f"## `{package}`\n\n{ast.get_docstring(tree)}\n"]
        lines += [entry(each, home, package) for each, home in homes]
    return "\n".join(lines)


def tree_of(module: str) -> ast.Module:
    """Parse the source of a module or package."""
    path = (ROOT / "sandbox" if module.startswith("codeact_sandbox") else ROOT) / module.replace(".", "/")
    source = path.with_suffix(".py")
    return ast.parse((source if source.exists() else path / "__init__.py").read_text(encoding="utf-8"))


def entry(name: str, home: str, package: str) -> str:
    """Return what the reference says about a public name: its docstring, or which package it is from."""
    if home.startswith("codeact_sandbox") and package != "codeact_sandbox":
        return f"`{name}`: see [`codeact_sandbox`](sandbox.md).\n"
    for node in tree_of(home).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return (
                entry(name, str(node.module), package)
                if str(node.module).startswith("autogen_codeact")
                else (f"`{name}` of `{node.module}`.\n")
            )
    return f"::: {home}.{name}\n"


def write_texts(project: dict[str, object]) -> None:
    """Write llms.txt, which lists the pages, and llms-full.txt, which holds them."""
    index, full = [f"# {project['site_name']}\n", f"> {project['site_description']}"], []
    for section in project["nav"]:
        ((title, pages),) = section.items()
        index.append(f"\n## {title}\n")
        for entry in pages if isinstance(pages, list) else [section]:
            ((name, path),) = entry.items()
            text = (PAGES / path).read_text(encoding="utf-8")
            address = f"{project['site_url']}{path.removesuffix('index.md').removesuffix('.md')}"
            index.append(f"- [{name}]({address.rstrip('/')}/): {first_sentence(text)}")
            if not path.startswith("reference/"):
                full.append(f"<!-- {path} -->\n\n{text.strip()}")
    (SITE / "llms.txt").write_text("\n".join(index) + "\n", encoding="utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(full) + "\n", encoding="utf-8")


def first_sentence(text: str) -> str:
    """Return the first sentence of a page, without its links."""
    paragraphs = [
        part for part in FENCE.sub("", text).split("\n\n") if not part.lstrip().startswith(("#", "!", "<", ":::", "|"))
    ]
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split()))
    return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")


class Page(HTMLParser):
    """The links and anchors of a built page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found["id"]} if found.get("id") else set()
        self.links += [found[name] or "" for name in ("href", "src") if name in found and tag != "link"]


def broken_links(address: str) -> list[str]:
    """Return what leads nowhere in the site; other sites are not asked."""
    pages = {path: Page(path) for path in SITE.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link.removeprefix(address) if link.startswith(address) else link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = target in pages and (not parts.fragment or unquote(parts.fragment) in pages[target].anchors)
            if not known and not (target.is_file() and target not in pages) and parts.fragment != "__skip":
                broken.append(f"{path.relative_to(SITE)} links to {link}")
    return sorted(set(broken))


if __name__ == "__main__":
    sys.exit(main())
