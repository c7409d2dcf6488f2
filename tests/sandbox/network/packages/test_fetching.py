"""The host's requests to indexes: certificates, passwords, proxies, and where an index may lead."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.network.index_fetching import Fetcher, FetchError
from codeact_sandbox.network.package_index import list_files
from codeact_sandbox.network.pip_config import PipConfig
from tests.sandbox.network.packages.conftest import configure
from tests.sandbox.network.packages.index_server import Index, basic, redirect
from tests.sandbox.network.servers import Hosts

PASSWORD = "someone:s3cret/x"
IN_URL = "someone:s3cret%2Fx"
PAGE = '<a href="../../files/one-1.0-py3-none-any.whl#sha256=' + "a" * 64 + '">one</a>'
FILE = "/files/one-1.0-py3-none-any.whl"


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configure(monkeypatch, NETRC=str(tmp_path / "netrc"))


def an_index(**options: Any) -> Index:
    """An index with one project."""
    return Index({"/simple/one/": PAGE, FILE: b"content"}, **options)


def names(url: str, hosts: Hosts, **options: Any) -> list[str]:
    """What the first source lists."""

    async def read() -> list[str]:
        config = PipConfig(indexes=(url,), **options)
        fetcher = Fetcher(config, hosts.resolve)
        try:
            found = await list_files(url, "one", fetcher)
            names = [file.filename for file in found]
            for file in found:
                async with fetcher.open(file.url, file.base) as (response, _):
                    content = b"".join([piece async for piece in response.aiter_raw()])
                    names.append(f"{response.headers['Content-Length']}: {content.decode()}")
            return names
        finally:
            await fetcher.close()

    return asyncio.run(read())


def problem(url: str, hosts: Hosts, **options: Any) -> str:
    """Why they can't be read."""
    with pytest.raises(FetchError) as caught:
        names(url, hosts, **options)
    return str(caught.value)


FOUND = ["one-1.0-py3-none-any.whl", "7: content"]


def test_an_index_with_tls_and_a_password(hosts: Hosts) -> None:
    index = an_index(password=PASSWORD)
    url = index.listen(hosts, tls=True).replace("://", f"://{IN_URL}@")
    assert names(url, hosts, cert=str(hosts.ca_file)) == FOUND
    assert [(each.target, each.headers["authorization"]) for each in index.requests] == [
        ("/simple/one/", basic(PASSWORD)), (FILE, basic(PASSWORD)),
    ]  # fmt: skip


def test_an_unknown_certificate_is_an_error_that_says_what_to_do(hosts: Hosts) -> None:
    url = an_index().listen(hosts, tls=True)
    assert problem(url, hosts) == (
        f"{url}one/ can't be fetched: its certificate is not trusted, for example because a proxy inspects TLS; set pip's cert "
        "on the host to a file with the certificate of its authority"
    )
    assert names(url, hosts, trusted_hosts=("127.0.0.1",)) == FOUND


def test_a_redirect_within_the_index_is_followed_with_the_password(hosts: Hosts) -> None:
    index = Index({"/simple/one/": redirect("/other/one/"), "/other/one/": PAGE, FILE: b"content"}, password=PASSWORD)
    url = index.listen(hosts).replace("://", f"://{IN_URL}@")
    assert names(url, hosts) == FOUND


def test_a_password_does_not_go_to_another_server(hosts: Hosts) -> None:
    other = an_index()
    target = other.listen(hosts)
    index = Index({"/simple/one/": redirect(f"{target}one/")}, password=PASSWORD)
    url = index.listen(hosts).replace("://", f"://{IN_URL}@")
    assert names(url, hosts, trusted_hosts=(f"127.0.0.1:{other.port}",)) == FOUND
    assert [each.headers.get("authorization") for each in other.requests] == [None, None]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("file:///etc/passwd", "file:///etc/passwd is not fetched: only http and https links of an index are followed"),
        ("ftp://127.0.0.1/x", "ftp://127.0.0.1/x is not fetched: only http and https links of an index are followed"),
        (
            "https://169.254.169.254/latest",
            "https://169.254.169.254/latest can't be fetched: it is not followed, because its host has the address "
            "169.254.169.254, which is link-local, where clouds hand out credentials; if that is right, add 169.254.169.254 to "
            "pip's trusted-host on the host",
        ),
        (
            "http://127.0.0.1:9/x",
            "http://127.0.0.1:9/x can't be fetched: it is not followed, because its host has the address 127.0.0.1, which is "
            "the host's own; if that is right, add 127.0.0.1 to pip's trusted-host on the host",
        ),
        (
            "https://inside.example/x",
            "https://inside.example/x can't be fetched: it is not followed, because its host has the address 127.0.0.1, which "
            "is the host's own; if that is right, add inside.example to pip's trusted-host on the host",
        ),
        ("http://plain.example/", "http://plain.example/ is not fetched: it has no TLS"),
        ("http://[::1/", "its answer breaks off, or is not HTTP"),
        ("http://127.0.0.1:99999/", "redirects to something that is not a URL"),
    ],
)
def test_where_an_index_may_not_lead(hosts: Hosts, location: Any, why: Any) -> None:
    hosts.addresses["inside.example"] = ["127.0.0.1"]
    in_page = Index({"/simple/one/": redirect(location)})
    assert why in problem(in_page.listen(hosts), hosts)


def test_links_of_a_page_are_checked_like_redirects(hosts: Hosts) -> None:
    inside = Index({"/one-1.0.tar.gz": b"secret"})
    inside.listen(hosts)
    page = f'<a href="http://127.0.0.1:{inside.port}/one-1.0.tar.gz">one</a>'
    assert "which is the host's own" in problem(Index({"/simple/one/": page}).listen(hosts), hosts)
    page = '<a href="file:///etc/one-1.0.tar.gz">one</a><a href="data:x/one-1.0.tar.gz">one</a>'
    assert names(Index({"/simple/one/": page}).listen(hosts), hosts) == []
    assert inside.requests == []
