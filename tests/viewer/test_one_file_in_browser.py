"""A run as one HTML page, opened from the disk in a real browser."""

import io
import re
from contextlib import contextmanager

import pytest
from PIL import Image
from playwright.async_api import expect

from autogen_codeact.runs import load_run
from autogen_codeact.runs.events import AgentInfo, RunFinished
from autogen_codeact.runs.results import ArtifactRecord, CallRecord, DisplayRecord, StoredFile
from autogen_codeact.viewer.one_file import export_html
from codeact_sandbox.types.result import ErrorInfo
from tests.runs.logs import lines, started, text, whole_run, write_log

from .test_one_file import block, store

pytestmark = pytest.mark.asyncio(loop_scope="module")

HACKS = "window.hacked = 1"
ATTACKS = (
    f"</script><script>{HACKS}</script>",
    f"--><img src=x onerror='{HACKS}'><svg onload='{HACKS}'>",
    "<img src='http://attack.invalid/a.png'><link rel=stylesheet href='//attack.invalid/a.css'>",
    f"[a link](javascript:{HACKS.replace(' ', '')}) ![an image](http://attack.invalid/b.png)",
    "<meta http-equiv=refresh content='0;url=http://attack.invalid'><base href='http://attack.invalid/'>",
    f"<iframe srcdoc='<script>top.{HACKS}</script>'></iframe><form action='http://attack.invalid'><button autofocus>",
    "\u202egnp.exe\u2066 \x1b]0;title\x07\x1b[2J \u2028",
)


def png(width, colour):
    Image.new("RGB", (width, 40), colour).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


@contextmanager
def watched(page):
    """Collect everything that a page asks for, and everything that goes wrong in it."""
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    yield asked, wrong


async def opened(page, tmp_path, folder, anchor=""):
    """Write the page of a run, open it, and return its address and what went wrong."""
    file = tmp_path / "run.html"
    export_html(load_run(folder), file)
    with watched(page) as (asked, wrong):
        await page.goto(file.as_uri() + anchor)
        await expect(page.locator(".steps article").first).to_be_visible()
    return file.as_uri(), asked, wrong


def only_itself(asked, address):
    """Return whether a page has asked for nothing but itself; images have addresses in its memory."""
    return [url for url in asked if not url.startswith("blob:null/")] == [address]


def figure_run(tmp_path):
    folder = tmp_path / "run"
    figure, saved = store(folder, png(321, "green")), store(folder, b"a,b\n1,2\n")
    shown = DisplayRecord(name="figure-1.png", data={"text/plain": "<Figure>"}, files={"image/png": figure})
    html = "<style>td { color: rgb(1, 2, 3) }</style><table><tr><td>Oslo</td></tr></table>"
    table = DisplayRecord(name="display-2", data={"text/plain": "a table", "text/html": html})
    artifact = ArtifactRecord(name="table.csv", size=8, media_type="text/csv", file=saved)
    events = [
        started("Draw a figure"),
        *block(1, output="drawn\n", displays=[shown, table], artifacts=[artifact]),
        text("It is **done**."),
        RunFinished(outcome="completed"),
    ]
    return write_log(folder, lines(events))


async def test_a_run_opens_from_the_disk_with_its_figures_and_without_a_request(page, tmp_path):
    folder = figure_run(tmp_path)
    address, asked, wrong = await opened(page, tmp_path, folder)
    image = page.locator("#step-2 img")
    await expect(image).to_have_count(1)
    await expect(image).to_have_js_property("naturalWidth", 321)
    cell = page.frame_locator("#step-2 iframe").locator("td")
    await expect(cell).to_have_text("Oslo")
    await expect(cell).to_have_css("color", "rgb(1, 2, 3)")
    await expect(page.locator("#step-3 strong")).to_have_text("done")
    async with page.expect_download() as started_download:
        await page.get_by_role("link", name="table.csv").click()
    download = await started_download.value
    assert (download.suggested_filename, (await download.path()).read_bytes()) == ("table.csv", b"a,b\n1,2\n")
    assert only_itself([url for url in asked if url != download.url], address)
    assert wrong == []


async def test_an_image_that_code_has_saved_is_shown_once(page, tmp_path):
    folder = tmp_path / "run"
    figure, saved = store(folder, png(321, "green")), store(folder, png(123, "red"))
    shown = DisplayRecord(name="figure-1.png", data={"text/plain": "<Figure>"}, files={"image/png": figure})
    files = [
        ArtifactRecord(name=name, size=file.size, media_type="image/png", file=file)
        for name, file in (("figure-1.png", figure), ("plot.png", saved))
    ]
    await opened(page, tmp_path, write_log(folder, lines([started(), *block(1, displays=[shown], artifacts=files)])))
    images = page.locator("#step-2 img")
    await expect(images).to_have_count(2)
    await expect(images.nth(0)).to_have_js_property("naturalWidth", 321)
    await expect(images.nth(1)).to_have_js_property("naturalWidth", 123)
    await expect(images.nth(1)).to_have_attribute("alt", "plot.png")


async def test_an_image_in_svg_that_code_has_saved_is_shown_in_a_frame(page, tmp_path):
    folder = tmp_path / "run"
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='90' height='60'><script>top.hacked=1</script><text>a b</text></svg>"
    saved = ArtifactRecord(name="plot.svg", size=len(svg), media_type="image/svg+xml", file=store(folder, svg.encode()))
    lost = ArtifactRecord(name="lost.svg", size=9, media_type="image/svg+xml", file=StoredFile(sha256="0" * 64, size=9))
    events = [started(), *block(1, artifacts=[saved, lost])]
    _, _, wrong = await opened(page, tmp_path, write_log(folder, lines(events)))
    await expect(page.frame_locator("#step-2 iframe").locator("text")).to_have_text("a b")
    await expect(page.locator("#step-2 figure").nth(1)).to_have_text("image/svg+xml, 9 bytes: not stored")
    assert await page.evaluate("window.hacked") is None
    assert wrong == []


async def test_a_figure_opens_in_a_tab_of_its_own(page, tmp_path):
    await opened(page, tmp_path, figure_run(tmp_path))
    async with page.context.expect_page() as opening:
        await page.locator("#step-2 img").click()
    tab = await opening.value
    await expect(tab.locator("img")).to_have_js_property("naturalWidth", 321)


async def test_keys_search_and_permalinks_work(page, tmp_path):
    events = [started(), *(text(f"word-{number} said") for number in range(500)), RunFinished(outcome="completed")]
    folder = write_log(tmp_path / "run", lines(events))
    address, asked, wrong = await opened(page, tmp_path, folder, "#step-300")
    await expect(page.locator("#step-300")).to_be_in_viewport()
    await expect(page.locator("#step-300")).to_contain_text("word-298 said")
    await page.keyboard.press("j")
    await expect(page).to_have_url(re.compile("#step-301$"))
    await page.keyboard.press("k")
    await expect(page).to_have_url(re.compile("#step-300$"))
    await page.keyboard.press("g")
    await expect(page.locator("#step-1")).to_be_in_viewport()
    await page.keyboard.press("G")
    await expect(page.locator("#step-502")).to_be_in_viewport()
    await page.keyboard.press("/")
    await page.get_by_role("searchbox").fill("WORD-123 said")
    await expect(page.locator("#step-125")).to_be_in_viewport()
    assert only_itself(asked, address)
    assert wrong == []


async def test_a_run_full_of_attacks_does_nothing(page, tmp_path):
    figure = store(tmp_path / "run", b"<svg xmlns='http://www.w3.org/2000/svg' onload='top.hacked=1'/>")
    events = [
        started(" ".join(ATTACKS)).model_copy(
            update={"name": ATTACKS[0], "agents": [AgentInfo(name=ATTACKS[1], kind="x")]}
        )
    ]
    for number, attack in enumerate(ATTACKS, 1):
        call = CallRecord(
            name=attack, arguments={attack: attack}, outcome="error", error=ErrorInfo(type=attack, message=attack)
        )
        display = DisplayRecord(
            name=attack,
            data={"text/plain": attack, "text/html": f"<b>seen {number}</b>{attack}", "image/svg+xml": attack},
            files={"image/png": figure},
        )
        artifact = ArtifactRecord(name=attack, size=3, media_type="image/svg+xml", file=figure, note=attack)
        events += [
            text(attack, attack),
            *block(
                number,
                output=attack,
                value_repr=attack,
                error=ErrorInfo(type=attack, message=attack),
                displays=[display, display.model_copy(update={"files": {}})],
                tool_calls=[call],
                artifacts=[artifact],
            ),
        ]
    events.append(RunFinished(outcome="failed", error=ErrorInfo(type=ATTACKS[0], message=ATTACKS[0])))
    folder = write_log(tmp_path / "run", lines(events))
    address, asked, wrong = await opened(page, tmp_path, folder)
    for number in range(1, len(ATTACKS) * 2 + 3):
        await page.keyboard.press("j")
        await expect(page.locator(f"#step-{min(number + 1, len(ATTACKS) * 2 + 2)}")).to_be_in_viewport()
    for summary in await page.locator("details summary:visible").all():
        await summary.click()
    assert await page.evaluate("window.hacked") is None
    assert only_itself(asked, address)
    assert page.url.startswith(address)
    # The browser complains of what it has blocked.
    assert [each for each in wrong if "violates the following Content Security Policy" not in each] == []
    assert await page.locator("script[src], link[href*=attack], base, form[action], img[src*=attack]").count() == 0


async def test_a_damaged_run_without_its_files_is_shown_as_far_as_it_goes(page, tmp_path):
    folder = figure_run(tmp_path)
    for file in (folder / "files").iterdir():
        file.unlink()
    log = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    write_log(folder, [*log[:3], b"damaged\n", log[4][:30]])
    _, _, wrong = await opened(page, tmp_path, folder)
    await expect(page.locator("header.bar .status")).to_have_text("interrupted")
    await expect(page.locator("article.kind-gap")).to_have_count(1)
    await expect(page.locator("#step-2")).to_contain_text("image/png, 202 bytes")
    await expect(page.locator("#step-2")).to_contain_text("table.csv")
    assert wrong == []


async def test_an_interrupted_run_is_shown(page, tmp_path):
    folder = write_log(tmp_path / "run", lines(whole_run())[:5])
    _, _, wrong = await opened(page, tmp_path, folder)
    await expect(page.locator("article.kind-block")).to_contain_text("print(6 * 7)")
    await expect(page.locator("article.kind-block")).to_contain_text("interrupted")
    assert wrong == []
