"""The site: every page of docs/ is in its navigation, and every public package has a reference. `make docs` builds it."""

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make_site():
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation():
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    entries = [entry for section in project["nav"] for pages in section.values() for entry in pages]
    shown = [path for entry in entries for path in entry.values()]
    site = make_site()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(site.COPIED.values())
    assert sorted(shown) == sorted(pages | {f"reference/{name}.md" for name in site.PACKAGES})


def test_reference_names_each_public_name():
    site = make_site()
    text = "".join(site.reference(name, packages) for name, packages in site.PACKAGES.items())
    assert "::: codeact_sandbox.session.sync_sandbox.Sandbox\n" in text
    assert "::: codeact_sandbox.types.limits.Limits\n" in text
    assert "::: autogen_codeact.telemetry.instrument\n" in text


def test_links_to_the_repository_and_lists_are_those_of_the_site():
    site = make_site()
    text = site.page_of_site("samples/README.md", "https://forge.example/us/it")
    assert "](models.md" in text
    text = site.page_of_site("README.md", "https://forge.example/us/it")
    assert "](contributing.md" in text
    assert "](https://forge.example/us/it/blob/main/LICENSE)" in text
