"""The viewer's server, asked by a real HTTP client."""

import asyncio
import re
import shutil
from contextlib import asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from autogen_codeact.viewer import serve
from autogen_codeact.viewer.server import CSP, ViewerError
from tests.cases import case
from tests.runs.logs import lines, whole_run, write_log

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 30


@asynccontextmanager
async def asking(*args, **options):
    """A served viewer and a client of it; paths are below the token."""
    async with serve(*args, **options) as url:
        base = url.split("/runs/")[0].rstrip("/")
        async with httpx.AsyncClient(base_url=base, timeout=WAIT_S) as client:
            yield client


@pytest.fixture(scope="module")
def runs(rich_run, tmp_path_factory):
    """A folder with three runs, one of which can't be read, and what is no run."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(rich_run, folder / "rich")
    write_log(folder / "short <b>", lines(whole_run()))
    write_log(folder / "broken", [b"{}\n"])
    (folder / "linked").symlink_to(folder / "rich")
    (folder / "empty").mkdir()
    (folder / "file").write_text("x")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def viewer(runs):
    """A client of a server with these runs."""
    async with asking(runs) as client:
        yield client


async def listed(client, count=3, **query):
    """The list of runs, when all have been read."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = (await client.get("/api/runs", params=query)).json()
            if not answer["indexing"] and answer["total"] == count:
                return answer
            await asyncio.sleep(0.05)


async def test_list_has_every_run_and_why_one_cannot_be_read(viewer):
    answer = await listed(viewer)
    rows = {row["id"]: row for row in answer["runs"]}
    assert rows.keys() == {"rich", "short <b>", "broken"}
    assert answer["matched"] == 3
    assert (rows["rich"]["agents"], rows["rich"]["models"]) == (["actor", "checker"], ["recorded answers"])
    assert (rows["rich"]["outcome"], rows["rich"]["blocks"]) == ("completed", 8)
    assert rows["rich"]["tokens"] > 1000
    assert rows["broken"]["outcome"] == "unreadable"
    assert "does not begin with the start of a run" in rows["broken"]["error"]


async def test_new_and_removed_runs_appear_in_the_list(tmp_path):
    write_log(tmp_path / "a", lines(whole_run()))
    async with asking(tmp_path) as client:
        assert [row["id"] for row in (await listed(client, 1))["runs"]] == ["a"]
        write_log(tmp_path / "b", lines(whole_run(task="another")))
        assert {row["id"] for row in (await listed(client, 2))["runs"]} == {"a", "b"}
        shutil.rmtree(tmp_path / "a")
        assert [row["id"] for row in (await listed(client, 1))["runs"]] == ["b"]


async def test_run_has_header_summaries_steps_and_output(viewer):
    assert (await viewer.get("/api/runs/short%20%3Cb%3E")).json()["id"] == "short <b>"
    header = (await viewer.get("/api/runs/rich")).json()
    assert (header["steps"], header["outcome"], header["controls"]) == (15, "completed", False)
    summaries = (await viewer.get("/api/runs/rich/summaries?from=2&to=3")).json()
    assert [each["number"] for each in summaries] == [2, 3]
    steps = (await viewer.get("/api/runs/rich/steps?from=3&to=4")).json()
    assert [(each["number"], each["kind"]) for each in steps] == [(3, "block"), (4, "message")]
    output = await viewer.get("/api/runs/rich/output/7")
    assert (output.text, output.headers["content-type"]) == ("looping\n", "text/plain; charset=utf-8")
    found = (await viewer.get("/api/runs/rich/search", params={"q": "ATLANTIS"})).json()
    assert found == {"steps": [5], "complete": True}


async def test_wrong_requests_get_a_reason(viewer):
    for path, status, error in [
        ("/api/runs/none", 404, "There is no such run."),
        ("/api/runs/linked", 404, "There is no such run."),
        ("/api/runs/empty", 404, "There is no such run."),
        ("/api/runs/..", 404, None),
        ("/api/runs/%2e%2e", 404, None),
        ("/api/runs/..%2frich", 404, None),
        ("/api/runs/rich%00", 404, "There is no such run."),
        ("/api/runs/rich/files/..%2f..%2fevents.jsonl", 404, None),
        ("/api/runs/rich/files/" + "0" * 64, 404, "The run has no such file."),
        ("/api/runs/rich/files/xyz", 404, "A file's name is its SHA-256 hash in hexadecimal digits."),
        ("/api/runs/rich/output/99", 404, "The run has no step 99."),
        ("/api/runs/rich/steps?from=x", 400, "from must be a whole number."),
        ("/page/../app.py", 404, None),
        ("/page/..%2f..%2fviewer%2fapp.py", 404, None),
        ("/nothing", 404, None),
        ("/api/runs/broken", 422, "does not begin with the start of a run"),
    ]:
        with case(path, status, error):
            answer = await viewer.get(path)
            assert answer.status_code == status
            assert error is None or error in answer.json()["error"]


# Pages and files


async def test_page_is_served_for_the_list_and_for_a_run(viewer):
    base = viewer.base_url.path.rstrip("/")
    pages = [(await viewer.get(path)) for path in ("/", "/runs/rich")]
    nonces = [re.search(r"'nonce-([^']+)'", page.headers["content-security-policy"])[1] for page in pages]
    assert len({*nonces}) == 2
    for page, nonce in zip(pages, nonces, strict=True):
        assert f'src="{base}/page/page.js"' in page.text
        assert "__" not in page.text.replace(base, "").replace(nonce, "")  # random, so they may have it
        assert page.headers["content-security-policy"] == CSP.replace(
            "style-src 'self'", f"style-src 'self' 'nonce-{nonce}'"
        )
    script = await viewer.get("/page/page.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_every_answer_has_the_headers_that_protect_the_page(viewer):
    for path in ("/page/page.js", "/api/runs", "/nothing"):
        headers = (await viewer.get(path)).headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


async def test_policy_allows_nothing_but_our_own_scripts_and_styles():
    assert CSP == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


async def test_files_are_downloads_unless_they_are_images(viewer):
    (block,) = (await viewer.get("/api/runs/rich/steps?from=5&to=5")).json()
    digest = block["files"][0]["file"]["sha256"]
    answer = await viewer.get(
        f"/api/runs/rich/files/{digest}", params={"name": 'a/"\u202e<x>.html', "type": "text/html"}
    )
    assert answer.text == "city,degrees\nOslo,8\nRome,19\n"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"a____x_.html\"; filename*=UTF-8''%22%3Cx%3E.html"
    )
    image = await viewer.get(f"/api/runs/rich/files/{digest}?type=image/png")
    assert (image.headers["content-type"], image.headers["content-disposition"]) == ("image/png", "inline")
    assert image.headers["x-content-type-options"] == "nosniff"


async def test_changed_and_linked_files_are_refused(rich_run, tmp_path):
    shutil.copytree(rich_run, tmp_path / "rich")
    changed, linked, *_ = sorted((tmp_path / "rich/files").iterdir())
    changed.write_bytes(b"evil")
    linked.unlink()
    linked.symlink_to("/etc/passwd")
    async with asking(tmp_path) as client:
        answers = [await client.get(f"/api/runs/rich/files/{each.name}") for each in (changed, linked)]
    assert [each.status_code for each in answers] == [404, 404]
    assert "it was changed" in answers[0].json()["error"]
    assert "root:" not in answers[1].text


# Who may ask


async def test_wrong_token_is_refused(viewer):
    for token in ["", "x", "A" * 32, "é"]:
        with case(token):
            for path in ("/", "/api/runs", "/page/page.js"):
                answer = await viewer.get(viewer.base_url.copy_with(path=f"/{token}{path}"))
                assert answer.status_code == 404
                assert "has a token in it" in answer.json()["error"]


async def test_only_local_host_names_are_answered(viewer):
    for host, status in [
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.0.7", 421),
        ("", 421),
        ("[::1", 421),
        ("localhost:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
    ]:
        with case(host, status):
            assert (await viewer.get("/api/runs", headers={"host": host})).status_code == status


async def test_requests_of_other_pages_are_refused(viewer):
    own = f"http://{viewer.base_url.netloc.decode()}"
    for headers, status in [
        ({"origin": own}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, 200),
    ]:
        with case(headers, status):
            answer = await viewer.get("/api/runs", headers=headers)
            assert answer.status_code == status
            assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_post_needs_json(viewer):
    for kind in [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]:
        with case(kind):
            headers = {"content-type": kind} if kind else {}
            answer = await viewer.post("/api/runs/rich/stop", content=b"{}", headers=headers)
            assert (answer.status_code, answer.json()) == (
                415,
                {"error": "The request's content type must be application/json."},
            )


async def test_run_without_control_has_no_buttons(viewer):
    answer = await viewer.post("/api/runs/rich/stop", json={})
    assert answer.status_code == 409
    assert "codeact run --view" in answer.json()["error"]


# Addresses


async def test_wrong_host_is_said(tmp_path):
    with pytest.raises(ViewerError, match=r"--host takes an IP address such as 127\.0\.0\.1, not 'example\.com'"):
        async with serve(tmp_path, host="example.com"):
            pass
    with pytest.raises(ViewerError, match=r"port 0: Cannot assign requested address\. Choose others"):
        async with serve(tmp_path, host="203.0.113.1"):
            pass
