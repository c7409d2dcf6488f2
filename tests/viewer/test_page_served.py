"""A web page that the code of a live run serves, in a frame of the viewer's page."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.cases import case

from .runs import python
from .test_page_live import live
from .watching import listening, reading_problems

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("bubblewrap")]
SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())
    def log_message(self, *_): pass
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever, daemon=True).start()
print("listens", flush=True)
pause(number=0)
"""
HOSTILE = """<title>x</title><p id=told></p><form target="_top" id="form"></form><a id="save" download href="data:,x">x</a>
<script>
(async () => {
  const told = {}, viewer = location.ancestorOrigins[0] + "/";
  const attempt = async (name, act) => {
    try { told[name] = String(await act()); } catch (error) { told[name] = error.name; }
  };
  await attempt("document", () => parent.document.title);
  await attempt("token", () => parent.location.href);
  await attempt("leave", () => { top.location = "THERE/top"; return top.closed; });
  await attempt("popup", () => window.open("THERE/popup"));
  await attempt("dialog", () => { alert(1); return confirm("?"); });
  await attempt("script", () => { parent.harm = 1; });
  await attempt("read", async () => (await fetch(viewer)).status);
  await attempt("referrer", () => document.referrer);
  document.getElementById("form").action = viewer;
  document.getElementById("form").submit();
  document.getElementById("save").click();
  parent.postMessage({ port: 1 }, "*");
  document.getElementById("told").textContent = JSON.stringify(told);
})();
</script>"""


async def test_page_that_code_serves_is_shown_while_the_run_lives(page, tmp_path):
    code = f"page = '<h1>Sales</h1>'\n{SERVER}"
    async with live(page, tmp_path, python(code), "Done.", alone=False) as (run, _):
        await expect(page.locator("article.running .output")).to_contain_text("listens")
        button = page.get_by_role("button", name="Open a web page that the code serves")
        await button.click()
        served = page.get_by_role("region", name="Web page of the code")
        await served.get_by_role("button", name="Open").click()
        await expect(served.get_by_role("status")).to_contain_text("The run has no sandbox yet")
        run.control.sandbox = run.executor
        await served.get_by_label("Port in the sandbox").fill("70000")
        await page.keyboard.press("Enter")
        await expect(served.get_by_role("status")).to_contain_text("70000 is not a port")
        await served.get_by_label("Port in the sandbox").fill("8000")
        await served.get_by_role("button", name="Open").click()
        await expect(page.frame_locator(".served iframe").locator("h1")).to_have_text("Sales")
        assert await reading_problems(page) == []
        address = await served.get_by_role("link").get_attribute("href")
        await served.get_by_role("button", name="Open").click()
        await expect(page.frame_locator(".served iframe").locator("h1")).to_have_text("Sales")
        assert await served.get_by_role("link").get_attribute("href") == address
        run.pauses[0].set()
        await expect(page.locator(".status")).to_have_text("completed")
        await expect(served).to_be_hidden()
        await expect(button).to_be_hidden()
        assert await page.locator("iframe").count() == 0


async def test_hostile_page_that_code_serves_stays_in_its_frame(own_page, tmp_path):
    page = own_page
    opened, downloads = [], []
    page.on("popup", lambda other: opened.append(other.url))
    page.on("download", lambda each: downloads.append(each.url))
    async with listening() as (port, received):
        there = f"http://localhost:{port}"
        code = f"page = {HOSTILE.replace('THERE', there)!r}\n{SERVER}"
        async with live(page, tmp_path, python(code), "Done.", alone=False) as (run, _):
            run.control.sandbox = run.executor
            viewer = page.url
            await expect(page.locator("article.running .output")).to_contain_text("listens")
            await page.get_by_role("button", name="Open a web page that the code serves").click()
            await page.locator(".served").get_by_role("button", name="Open").click()
            told = page.frame_locator(".served iframe").locator("#told")
            await expect(told).to_contain_text("referrer")
            assert await told.evaluate("element => JSON.parse(element.textContent)") == {
                "document": "SecurityError",
                "token": "SecurityError",
                "leave": "SecurityError",
                "popup": "null",
                "dialog": "false",
                "script": "SecurityError",
                "read": "TypeError",
                "referrer": "",
            }
            for address in (f"{there}/frame", f"http://127.0.0.1:{port}/frame", viewer):
                with case(address):
                    await told.evaluate("(_, address) => { location = address; }", address)
                    async with asyncio.timeout(30):
                        while not page.frames[1].url.startswith("chrome-error:"):  # noqa: ASYNC110 - of the browser
                            await asyncio.sleep(0.02)
                    await page.locator(".served").get_by_role("button", name="Open").click()
                    await expect(told).to_contain_text("referrer")
            assert (page.url, opened, downloads) == (viewer, [], [])
            assert await page.evaluate("[globalThis.harm, document.querySelectorAll('article').length > 0]") == [
                None,
                True,
            ]
            run.pauses[0].set()
    assert not any(received)  # the browser connects in advance
