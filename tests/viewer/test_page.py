"""The viewer's page in a browser, with a recorded run and the real server."""

import re
import shutil
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import expect

from autogen_codeact.viewer import serve

from .conftest import VIEWPORT, WAIT_MS
from .runs import SHOW
from .watching import Watched, reading_problems

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(rich_run, tmp_path_factory):
    """The address of the viewer, for a folder with three runs."""
    folder = tmp_path_factory.mktemp("viewer")
    for name in ("20261101-first", "20261102-rich", "20261103-last"):
        shutil.copytree(rich_run, folder / name)
    async with serve(folder) as url:
        yield url


@asynccontextmanager
async def showing_run(page, address):
    """Show the rich run; at the end, nothing may have gone wrong in its page."""
    watched = Watched(page, address)
    await page.goto(f"{address}runs/20261102-rich")
    await expect(page.locator("#step-1")).to_contain_text("Make a table of two cities")
    yield page
    assert (watched.requests, watched.messages, watched.dialogs) == ([], [], [])


@pytest_asyncio.fixture(loop_scope="module")
async def run_page(page, address):
    """The page of the rich run."""
    async with showing_run(page, address):
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown_run(browser, address):
    """The page of the rich run, for tests that only look at it and open parts of steps; it is loaded once."""
    async with await browser.new_context(viewport=VIEWPORT, reduced_motion="reduce") as context:
        context.set_default_timeout(WAIT_MS)
        async with showing_run(await context.new_page(), address) as page:
            yield page


async def show(page, number):
    """Scroll to a step, and return it."""
    await page.evaluate("number => { location.hash = `#step-${number}`; }", number)
    step = page.locator(f"#step-{number}:not(.placeholder)")
    await expect(step).to_be_visible()
    return step


@pytest.mark.one_browser_test
async def test_overview_says_what_the_run_was(shown_run):
    overview = shown_run.locator(".overview")

    await expect(shown_run).to_have_title("Make a table of two cities, and check it. · codeact")
    await expect(shown_run.get_by_role("heading", level=1)).to_have_text("Make a table of two cities, and check it.")
    await expect(shown_run.locator(".bar .id")).to_have_text("20261102-rich")
    await expect(shown_run.locator(".status")).to_have_text("completed")
    await expect(overview.locator(".facts")).to_contain_text("8 blocks")
    await expect(overview.locator(".facts")).to_contain_text("1k tokens read")
    await expect(overview.locator(".agents li")).to_have_text(
        ["actor CodeActAgent, recorded answers", "checker CodeExecutorAgent, recorded answers"], use_inner_text=True
    )
    await expect(overview.locator(".timing-line")).to_contain_text("sandbox")


async def test_words_code_output_value_and_displays_are_in_their_step(shown_run):
    words = await show(shown_run, 2)
    await expect(words.locator("strong")).to_have_text("table")
    await words.get_by_text("thought").click()
    await expect(words).to_contain_text("Two cities are enough.")

    block = await show(shown_run, 3)
    await expect(block.locator("h2")).to_have_text("actor ran Python")
    await expect(block.locator(".code .t-k").first).to_have_text("class")
    assert await block.locator(".code pre").inner_text() == SHOW.rstrip()
    await expect(block.locator(".output pre")).to_contain_text("two cities")
    frames = block.locator("iframe.display")
    await expect(frames).to_have_count(2)
    assert [await each.get_attribute("sandbox") for each in await frames.all()] == ["", ""]
    await expect(frames.nth(0).content_frame.locator("td")).to_have_text(["Oslo", "7"])
    await expect(frames.nth(1).content_frame.locator("circle")).to_have_count(1)


async def test_calls_and_files_open_with_arguments_results_and_differences(shown_run):
    step = await show(shown_run, 5)

    calls = step.locator(".calls li")
    await expect(calls).to_have_count(3)
    await expect(calls.nth(0).locator("summary")).to_contain_text('look_up(city="Oslo")→ 8')
    await expect(calls.nth(2).locator("summary")).to_contain_text("refused")
    await calls.nth(1).locator("summary").click()
    await expect(calls.nth(1).locator("dl")).to_contain_text("KeyError: Atlantis")
    file = step.locator("details.file")
    await expect(file.locator("summary")).to_contain_text(re.compile(r"changed\s*cities\.csv"))
    await file.locator("summary .change").click()
    await expect(file.locator(".line.minus")).to_have_text("-Oslo,7")
    await expect(file.locator(".line.plus")).to_have_text("+Oslo,8")
    await expect(step.locator("div.file")).to_contain_text(re.compile(r"added\s*data\.bin\s*256 bytes"))


async def test_states_decisions_handoffs_and_the_end_are_marked_where_they_happened(shown_run):
    await expect((await show(shown_run, 6)).locator(".kept")).to_have_text("variables kept")
    await expect((await show(shown_run, 7)).locator(".marks")).to_have_text("timeout · exit code 124variables restored")
    await expect((await show(shown_run, 10)).locator("h2")).to_have_text("actor handed over to checker")
    decision = await show(shown_run, 12)
    await expect(decision.locator("h2")).to_have_text("checker tries again")
    await expect(decision).to_contain_text("It ended with exit code 3.")
    await expect(shown_run.locator("#step-10")).to_contain_text("Check the table, please.")
    await expect((await show(shown_run, 15)).locator(".marks")).to_have_text("completed")


async def test_keys_move_search_and_help(run_page):
    keyboard = run_page.keyboard
    selected = run_page.locator("article.selected .number")

    await keyboard.press("j")
    await expect(selected).to_have_text("2")
    await keyboard.press("j")
    await keyboard.press("k")
    await expect(selected).to_have_text("2")
    await keyboard.press("G")
    await expect(selected).to_have_text("15")
    await keyboard.press("E")
    await expect(selected).to_have_text("11")
    await keyboard.press("E")
    await expect(selected).to_have_text("7")
    await keyboard.press("g")
    await expect(selected).to_have_text("1")
    assert await run_page.evaluate("location.hash") == "#step-1"

    await keyboard.press("?")
    help_dialog = run_page.get_by_role("dialog")
    await expect(help_dialog).to_contain_text("next step that failed")
    await keyboard.press("j")
    await keyboard.press("Escape")
    await expect(help_dialog).to_have_count(0)
    await expect(selected).to_have_text("1")


async def test_search_finds_steps_by_all_their_text(run_page):
    await run_page.keyboard.press("/")
    await run_page.keyboard.type("KEYERROR")
    result = run_page.locator(".find [role=status]")

    await expect(result).to_have_text("1 of 1 step")
    await expect(run_page.locator("article.selected .number")).to_have_text("5")
    assert await run_page.evaluate("CSS.highlights.get('found').size") >= 1
    await run_page.get_by_role("searchbox").fill("no such text")
    await expect(result).to_have_text("nothing found")
    await run_page.keyboard.press("Escape")
    await expect(run_page.locator(".find")).to_be_hidden()
    await run_page.keyboard.press("k")
    await expect(run_page.locator("article.selected .number")).to_have_text("4")


@pytest.mark.parametrize(("scheme", "numbers"), [("light", [3, 11]), ("dark", [5])])
async def test_screen_readers_can_read_all(run_page, scheme, numbers):
    await run_page.emulate_media(color_scheme=scheme)
    light = await run_page.evaluate("getComputedStyle(document.body).backgroundColor === 'rgb(251, 251, 250)'")
    assert light is (scheme == "light")
    for number in numbers:
        step = await show(run_page, number)
        for summary in await step.locator("summary").all():
            await summary.click()
        assert await reading_problems(run_page) == []
    await run_page.keyboard.press("?")
    assert await reading_problems(run_page) == []


async def test_list_searches_filters_and_opens_runs(page, address):
    watched = Watched(page, address)
    await page.goto(address)
    rows = page.locator(".runs li")
    amount = page.locator(".amount")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("Make a table of two cities, and check it.")
    await expect(rows.first).to_contain_text("completed")
    await expect(rows.first).to_contain_text(" blocks")

    await page.get_by_role("searchbox").fill("20261103")
    await expect(amount).to_have_text("1 of 3 runs")
    await expect(rows).to_have_count(1)
    await page.get_by_role("searchbox").fill("")
    await page.get_by_label("Outcome").select_option("failed")
    await expect(amount).to_have_text("0 of 3 runs")
    await page.get_by_label("Outcome").select_option("completed")
    await page.get_by_role("searchbox").fill("checker")
    await expect(rows).to_have_count(3)
    assert await reading_problems(page) == []
    assert "outcome=completed" in page.url

    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(rows.nth(1).locator("a")).to_be_focused()
    name = await rows.nth(1).locator("a").get_attribute("href")
    await page.keyboard.press("Enter")
    await expect(page.locator("#step-1")).to_be_visible()
    assert page.url.endswith(name)
    await page.get_by_role("link", name="Runs").click()
    await expect(rows).to_have_count(3)
    assert (watched.requests, watched.messages, watched.dialogs) == ([], [], [])


async def test_run_that_is_not_there_is_said(page, address):
    await page.goto(f"{address}runs/nothing")

    await expect(page.get_by_role("alert")).to_have_text("There is no such run.")
