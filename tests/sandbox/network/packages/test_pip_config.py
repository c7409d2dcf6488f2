"""What the host's pip is configured for, and project pages, which are written again with our own links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from codeact_sandbox.network import pip_config
from codeact_sandbox.network.index_pages import ProjectFile, parse_page, write_html
from codeact_sandbox.network.pip_config import PipConfig


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of a host without any configuration, but a home."""
    monkeypatch.setattr(pip_config, "SYSTEM_FILE", tmp_path / "none.conf")
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
    }


def write(folder: str | Path, text: str) -> None:
    """Write a configuration file."""
    path = Path(folder) / "pip" / "pip.conf"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_every_option_arrives(host: dict[str, str], tmp_path: Path) -> None:
    write(
        host["XDG_CONFIG_HOME"],
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n  https://b.example\n  https://c.example\n"
        "trusted-host=f:1 g\nproxy = http://h\ncert = ~/ca.pem\nclient-cert = /me.pem\n",
    )
    expected = PipConfig(
        indexes=("https://a.example/simple", "https://b.example", "https://c.example"),
        trusted_hosts=("f:1", "g"),
        cert=str(Path.home() / "ca.pem"),
        client_cert="/me.pem",
        proxy="http://h",
    )
    assert PipConfig.of_host(host) == expected


def test_variables_win_over_files(host: dict[str, str]) -> None:
    write(host["XDG_CONFIG_HOME"], "[install]\nindex-url = https://a.example\n")
    found = PipConfig.of_host({**host, "PIP_INDEX_URL": "https://b.example", "PIP_DEFAULT_TIMEOUT": "30"})
    assert found == PipConfig(indexes=("https://b.example",))


def test_without_configuration_it_is_the_index_of_pip(host: dict[str, str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"],
        env=host,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    default = re.search(r"\(default\s+(https:\S+)\)", shown.stdout)
    assert PipConfig.of_host(host).indexes == (default[1],)
    assert PipConfig.of_host({**host, "REQUESTS_CA_BUNDLE": "/ca.pem"}).cert == "/ca.pem"


BASE = "https://index.example/simple/one/"
SHA = "b" * 64
FILES = [
    ProjectFile(
        "one-1.0-py3-none-any.whl", "https://files.example/a/one-1.0-py3-none-any.whl", BASE,
        {"sha256": SHA}, ">=3.8,<4", "it \"breaks\" <things>",
    ),
    ProjectFile("one-2.0.tar.gz", "https://index.example/files/one-2.0.tar.gz", BASE, {}, None, True),
    ProjectFile("one-3.0.zip", "https://index.example/simple/one/one-3.0.zip", BASE),
]  # fmt: skip
HTML = f"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
<a href="https://files.example/a/one-1.0-py3-none-any.whl#sha256={SHA}" data-requires-python="&gt;=3.8,&lt;4"
   data-yanked="it &quot;breaks&quot; &lt;things&gt;" data-core-metadata="sha256={"c" * 64}">whatever</a>
<a href="/files/one-2.0.tar.gz" data-yanked data-dist-info-metadata="true">one-2.0.tar.gz</a>
<a href=" one-3.0.zip ">three</a> <a>no link</a> <a href="../two/">two</a> <a href="https://[/one-4.0.zip">bad</a>
<a href="https://x:99999/one-5.0.zip">bad</a> <a href="one%2f..%2f6.0.zip">bad</a> <a href="one%0d-7.0.zip">bad</a>
"""


def test_a_page_in_html() -> None:
    assert parse_page(HTML.encode(), BASE) == FILES


def test_what_is_written_says_the_same_with_our_links() -> None:
    again = parse_page(write_html("one", FILES), "http://127.0.0.1:1/simple/one/")
    links = [f"http://127.0.0.1:1/files/one/{file.filename}" for file in FILES]
    base = "http://127.0.0.1:1/simple/one/"
    assert again == [
        ProjectFile(file.filename, url, base, file.hashes, file.requires_python, file.yanked)
        for file, url in zip(FILES, links, strict=True)
    ]
