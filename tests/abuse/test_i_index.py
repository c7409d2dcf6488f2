"""I20 to I24. The package index of `allow_pip`: an index that lies, hangs or is endless, and code that misuses it."""

import hashlib
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from codeact_sandbox.packages.index import PackageIndex
from codeact_sandbox.packages.pip_config import PipConfig
from tests.sandbox.egress.servers import Hosts
from tests.sandbox.images import make_wheel
from tests.sandbox.packages.conftest import configure
from tests.sandbox.packages.index_server import Index, Page, basic

from .subject import Subject, each_engine, one_kind

SECRET = "s3cret-of-the-index"
INSTALL = "pip install --no-deps tinywheel"
# Sends bytes to the index and prints the first line of what comes back.
ASK = """
    import os, socket, urllib.parse
    where = urllib.parse.urlsplit(os.environ["PIP_INDEX_URL"])

    def ask(request):
        with socket.create_connection((where.hostname, where.port), 5) as sock:
            sock.settimeout(20)
            sock.sendall(request)
            data = sock.recv(65536)
            while sock.recv(65536):
                pass
        return data.split(b"\\r\\n")[0].decode()

    def get(target, method="GET"):
        return ask(b"%s %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % (method.encode(), target.encode("latin-1")))
"""


def wheel(folder: Path) -> bytes:
    """A package without needs."""
    return make_wheel(folder, "value = 1\n", needs="").read_bytes()


def page(content: bytes, href: str = "/files/tinywheel-1.0-py3-none-any.whl") -> str:
    """A project page with one link."""
    return f'<a href="{href}#sha256={hashlib.sha256(content).hexdigest()}">x</a>'


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    """Import what the index needs before memory is measured."""
    PackageIndex(1, PipConfig())


async def start(
    subject: Subject,
    hosts: Hosts,
    monkeypatch: pytest.MonkeyPatch,
    index: Index,
    *,
    tls: bool = False,
    timeout: str = "15",
) -> str:
    """Start the sandbox with an index; gives its URL."""
    url = index.listen(hosts, tls=tls)
    user = "" if index.password is None else f"{index.password}@"
    configure(
        monkeypatch, PIP_INDEX_URL=url.replace("://", f"://{user}"), PIP_CERT=str(hosts.ca_file), PIP_TIMEOUT=timeout
    )
    await subject.start({"allow_pip": True}, memory="512m", tmp="64m")
    return url


# Case I20.
@each_engine
async def test_passwords_certificates_and_addresses_of_the_index_stay_on_the_host(
    subject, hosts, monkeypatch, tmp_path
):
    content = wheel(tmp_path / "made")
    index = Index(
        {"/simple/tinywheel/": page(content), "/files/tinywheel-1.0-py3-none-any.whl": content}, f"someone:{SECRET}"
    )
    await start(subject, hosts, monkeypatch, index, tls=True)
    result = await subject.run(INSTALL + " --verbose", "sh", 30)
    assert result.exit_code == 0, result
    assert {each.headers["authorization"] for each in index.requests} == {basic(f"someone:{SECRET}")}
    code = f"""
    import os, sys
    wanted = [{SECRET[:8]!r}.encode() + {SECRET[8:]!r}.encode(), b":%d/" % {index.port}, b"BEGIN CERT" + b"IFICATE"]
    found = [each for each in wanted if each in repr(dict(os.environ)).encode()]
    for top in ("/packages", "/tmp", "/workspace"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and path != __file__ and name != "ca.pem":
                    content = open(path, "rb").read()
                    found += [(path, each) for each in wanted if each in content]
    print(found)
    import tinywheel
    """
    if subject.session:
        code = code.replace("path != __file__ and ", "")
    assert await subject.out(code) == "[]\n"
    text = f"{result.output}{result.notes}"
    assert SECRET not in text
    assert basic(f"someone:{SECRET}").split()[1] not in text
    assert f":{index.port}/" not in text


HOSTILE = [
    "/", "/simple/", "/simple/../files/x", "/simple/%2e%2e/", "/simple/..%2f..%2fetc%2fpasswd/", "/simple/a%0d%0aX:y/",
    "/simple/" + "a" * 200 + "/", "/simple/tinywheel/../../etc/passwd", "/simple/-/", "/simple/tinywheel;/",
    "/files/tinywheel/", "/files/tinywheel/../../secret", "/files/tinywheel/..%2f..%2fsecret", "/files/tinywheel/%2fetc%2fpasswd",
    "/files/tinywheel/http:%2f%2f127.0.0.1%2f", "/files/../tinywheel-1.0-py3-none-any.whl", "/files/tinywheel/other-1.0.tar.gz",
    "/files/tinywheel/tinywheel-1.0-py3-none-any.whl.metadata", "/files/tinywheel/.metadata", "//127.0.0.1/simple/tinywheel/",
]  # fmt: skip


# Case I21.
@one_kind
async def test_the_sandbox_names_projects_and_files_and_nothing_else(subject, hosts, monkeypatch, tmp_path):
    content = wheel(tmp_path / "made")
    index = Index({"/simple/tinywheel/": page(content), "/files/tinywheel-1.0-py3-none-any.whl": content})
    await start(subject, hosts, monkeypatch, index)
    code = f"""{ASK}
    for target in {HOSTILE!r}:
        print(get(target), ascii(target)[:60])
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        print(get("/simple/tinywheel/", method), method)
    print(get("/simple/tinywheel/" + "x" * 70000))
    print(ask(b"GET /simple/tinywheel/ HTTP/1.1\\r\\nHost: x\\r\\n folded\\r\\n\\r\\n"))
    print(ask(b"GET /simple/tiny\\rwheel/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"))
    print(get("/simple/tinywheel/"), get("/simple/TinyWheel", "HEAD"), get("/files/tinywheel/tinywheel-1.0-py3-none-any.whl"))
    """
    shown = (await subject.out(code, timeout=30)).splitlines()
    statuses = [re.match(r"HTTP/1\.1 (\d+)", line)[1] for line in shown]  # type: ignore[index]
    targets = len(HOSTILE)
    assert statuses[:targets] == ["404"] * targets, shown
    assert statuses[targets : targets + 6] == ["405"] * 6
    assert statuses[targets + 6 : targets + 9] == ["400"] * 3
    assert shown[-1].count("HTTP/1.1 200 OK") == 3
    assert {each.target for each in index.requests} == {
        "/simple/tinywheel/", "/files/tinywheel-1.0-py3-none-any.whl",
    }  # fmt: skip
    assert {each.method for each in index.requests} == {"GET"}


def lying(body: bytes, length: int) -> Callable[[socket.socket], None]:
    """An answer whose length is another one."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n".encode()
    return lambda sock: sock.sendall(head + body)


def endless(sock: socket.socket) -> None:
    """An answer that does not end."""
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + bytes(65536) + b"\r\n"
    while True:
        sock.sendall(piece)


GIB_10 = 10 * 1024**3
TRY = """
    for project in {projects!r}:
        try:
            print(get("{path}" % ((project,) * "{path}".count("%s"))).split()[1])
        except OSError as error:
            print(type(error).__name__)
"""


PAGES: dict[str, Page] = {
    "no-end": endless,
    "10gb": lying(b"<a href", GIB_10),
    "many-links": "<a href='x-1.0.zip'>" * 100_000,
    "one-long-tag": "<a href='" + "x" * 4_000_000,
    "deep-json": "[" * 1_000_000,
    "another-kind": b"\x89PNG",
    "canary": b"",
}
TYPES = {"/simple/deep-json/": "application/vnd.pypi.simple.v1+json", "/simple/another-kind/": "image/png"}
