"""What the host's pip is configured for, and project pages, which are written again with our own links."""

import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codeact_sandbox.packages import pip_config
from codeact_sandbox.packages.fetching import Credentials
from codeact_sandbox.packages.pages import ProjectFile, belongs_to, canonical_name, parse_page, write_html
from codeact_sandbox.packages.pip_config import PipConfig, read_options


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


@pytest.mark.parametrize("settings", [True, False])
def test_user_with_only_a_number_has_no_files_in_a_home(host, monkeypatch, settings):
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    write(host["XDG_CONFIG_HOME"], "[global]\ntimeout = 7\n")
    for name in ("HOME", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    del host["HOME"]
    if not settings:
        del host["XDG_CONFIG_HOME"]
    assert read_options(host).get("timeout") == ("7" if settings else None)
    assert Credentials([]).header("https://a.example/simple/") is None


@pytest.mark.parametrize("only", [True, False])
def test_the_options_are_those_that_pip_lists(host, tmp_path, monkeypatch, only):
    monkeypatch.undo()  # the system's own file counts, too
    write(
        host["XDG_CONFIG_DIRS"],
        "[global]\nindex-url = https://a.example/simple\ntimeout = 7\n[install]\nno-index = yes\n",
    )
    write(
        host["XDG_CONFIG_HOME"],
        "[global]\nindex_url = https://b.example/simple\ntrusted-host =\n  b.example\n  c.example\n",
    )
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip" / "pip.conf").write_text("[global]\ntimeout = 8\n[list]\nformat = json\n")
    (tmp_path / "more.conf").write_text("[global]\ncert = ~/ca.pem\n")
    host |= {"PIP_EXTRA_INDEX_URL": "https://d.example https://e.example"}
    if only:
        host |= {"PIP_CONFIG_FILE": str(tmp_path / "more.conf")}
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=host,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found = re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE)
    by_pip = {name: value.replace("\\n", "\n") for name, value in found if name != "config-file"}
    own = read_options(host)
    own.pop("config-file", None)
    assert own == by_pip
    assert (own["timeout"], own["index-url"]) == (
        ("7", "https://a.example/simple") if only else ("8", "https://b.example/simple")
    )


def test_every_option_arrives(host: dict[str, str], tmp_path: Path) -> None:
    write(
        host["XDG_CONFIG_HOME"],
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n  https://b.example\n  file:///c\nfind-links = /d e\n"
        "trusted-host=f:1 g\nproxy = http://h\ncert = ~/ca.pem\nclient-cert = /me.pem\ntimeout=9\n",
    )
    expected = PipConfig(
        indexes=("https://a.example/simple", "https://b.example", "file:///c"),
        find_links=("/d", "e"),
        trusted_hosts=("f:1", "g"),
        cert=str(Path.home() / "ca.pem"),
        client_cert="/me.pem",
        proxy="http://h",
        timeout_s=9,
    )
    assert PipConfig.of_host(host) == expected


def test_variables_win_over_files_and_no_index_leaves_find_links(host: dict[str, str]) -> None:
    write(host["XDG_CONFIG_HOME"], "[install]\nfind-links = /a\nindex-url = https://a.example\n")
    assert PipConfig.of_host(
        {**host, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/b", "PIP_DEFAULT_TIMEOUT": "30"}
    ) == PipConfig(find_links=("/b",), timeout_s=30, no_index=True)


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


def test_a_broken_file_is_named_and_skipped(host: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    write(host["XDG_CONFIG_HOME"], "no section = 1\n")
    assert PipConfig.of_host({**host, "PIP_TIMEOUT": "soon", "PIP_NO_INDEX": "true"}) == PipConfig(no_index=True)
    path = Path(host["XDG_CONFIG_HOME"]) / "pip" / "pip.conf"
    assert caplog.messages == [f"the configuration of pip in {path} can't be read: MissingSectionHeaderError"]


BASE = "https://index.example/simple/one/"
SHA = "b" * 64
FILES = [
    ProjectFile(
        "one-1.0-py3-none-any.whl", "https://files.example/a/one-1.0-py3-none-any.whl", BASE,
        {"sha256": SHA}, ">=3.8,<4", "it \"breaks\" <things>", {"sha256": "c" * 64},
    ),
    ProjectFile("one-2.0.tar.gz", "https://index.example/files/one-2.0.tar.gz", BASE, {}, None, True, {}),
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
        ProjectFile(file.filename, url, base, file.hashes, file.requires_python, file.yanked, file.metadata)
        for file, url in zip(FILES, links, strict=True)
    ]


def test_names_of_projects() -> None:
    assert canonical_name("Zope._Interface") == "zope-interface"
    for wrong in ("", "-x", "x-", "a/b", "..", "a b", "a\n", "ä", "%2e%2e", "x" * 129):
        assert canonical_name(wrong) is None


def test_files_of_a_folder_belong_to_projects() -> None:
    assert belongs_to("Zope_Interface-5.0-py3-none-any.whl", "zope-interface")
    assert belongs_to("zope.interface-5.0.tar.gz", "zope-interface")
    assert not belongs_to("zope-interface-extra-5.0.tar.gz", "zope-interface")
    assert not belongs_to("zope-5.0.tar.gz", "zope-interface")
