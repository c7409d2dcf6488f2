"""A run as one HTML page, opened from the disk in a real browser."""

import io

import pytest
from PIL import Image
from playwright.async_api import expect

from autogen_codeact.runs import load_run
from autogen_codeact.runs.events import RunFinished
from autogen_codeact.runs.results import ArtifactRecord, DisplayRecord, StoredFile
from autogen_codeact.viewer.one_file import export_html
from tests.runs.logs import lines, started, text, write_log

from .runs import block, store
from .test_page_hostile import NOTHING, NOTHING_DONE, hostile_events, open_everything, show
from .watching import Watched, listening

pytestmark = pytest.mark.asyncio(loop_scope="module")


def png(width, colour):
    Image.new("RGB", (width, 40), colour).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


async def opened(page, tmp_path, folder, anchor=""):
    """Write the page of a run, open it, and return its address and what went wrong."""
    file = tmp_path / "run.html"
    export_html(load_run(folder), file)
    watched = Watched(page, "file:///")
    page.on("request", lambda request: watched.requests.append(request.url))
    await page.goto(file.as_uri() + anchor)
    await expect(page.locator(".steps article").first).to_be_visible()
    return file.as_uri(), watched.requests, watched.messages


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


async def test_search_and_permalinks_work(page, tmp_path):
    events = [started(), *(text(f"word-{number} said") for number in range(500)), RunFinished(outcome="completed")]
    folder = write_log(tmp_path / "run", lines(events))
    address, asked, wrong = await opened(page, tmp_path, folder, "#step-300")
    await expect(page.locator("#step-300")).to_be_in_viewport()
    await expect(page.locator("#step-300")).to_contain_text("word-298 said")
    await page.keyboard.press("G")
    await expect(page.locator("#step-502")).to_be_in_viewport()
    await page.keyboard.press("/")
    await page.get_by_role("searchbox").fill("WORD-123 said")
    await expect(page.locator("#step-125")).to_be_in_viewport()
    assert only_itself(asked, address)
    assert wrong == []


async def test_a_run_full_of_attacks_does_nothing(page, tmp_path):
    async with listening() as (port, received):
        events = hostile_events(port)
        folder = write_log(tmp_path / "run", lines(events))
        address, asked, wrong = await opened(page, tmp_path, folder)
        count = await page.evaluate("JSON.parse(exportedHeader.textContent).steps")
        for number in range(1, count + 1):
            await show(page, number)
            await open_everything(page)
            state = await page.evaluate(NOTHING_DONE)
            assert set(state.pop("frames")) <= {""}
            # The data of an exported page and its script are elements of its own.
            assert state | {"injected": 0} == NOTHING, number
        assert only_itself(asked, address)
        assert page.url.startswith(address)
        assert (wrong, received) == ([], [])
        assert await page.locator("#injected, script[src], base, form[action]").count() == 0
