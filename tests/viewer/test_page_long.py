"""Long runs in the viewer's page: only what is near the screen is in it."""

import pytest
import pytest_asyncio
from playwright.async_api import expect

from autogen_codeact.runs.events import RunFinished
from autogen_codeact.viewer import serve, steps
from tests.runs.logs import lines, started, text, write_log

from .runs import block
from .watching import Watched, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
STEPS = 5000
LONG_LINE = 300_000
"""Characters of a line of output: the page gets a part of it, and shows less."""


def long_events():
    """Return the events of a run with many steps of very different heights."""
    events = [started("A long run.")]
    for number in range(2, STEPS):
        if number % 10:
            words = f"Words of step {number}.\n\n" + "\n\n".join(["more"] * (number % 7))
            events.append(text(words))
            continue
        output = f"{'x' * LONG_LINE}\nend" if number % 500 == 0 else "line\n" * (number % 200)
        events += block(number, "work()", output=output)
    return [*events, RunFinished(outcome="completed")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory):
    """The address of the viewer with the long run."""
    folder = tmp_path_factory.mktemp("long")
    write_log(folder / "long", lines(long_events()))
    async with serve(folder) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def long_page(page, address):
    """The page of the long run."""
    watched = Watched(page, address)
    await page.goto(f"{address}runs/long")
    await expect(page.locator("#step-2:not(.placeholder)")).to_contain_text("Words of step 2.")
    await expect(page.locator(".facts")).to_contain_text(f"{STEPS:,} steps")
    yield page
    assert (watched.requests, watched.messages, watched.dialogs) == ([], [], [])


async def amount(page):
    """Return how many steps and elements are in the page."""
    return await page.evaluate("[document.querySelectorAll('article').length, document.querySelectorAll('*').length]")


async def assert_small(page):
    """Assert that few of the steps are in the page."""
    steps, elements = await amount(page)
    assert steps < 100
    assert elements < 5000


async def test_any_step_is_shown_at_once_and_few_are_in_the_page(long_page):
    await assert_small(long_page)
    await long_page.keyboard.press("G")
    await expect(long_page.locator("article.kind-end:not(.placeholder)")).to_be_in_viewport()
    for number in (1501, 7, 4888):
        await long_page.evaluate("number => { location.hash = `#step-${number}`; }", number)
        step = long_page.locator(f"#step-{number}:not(.placeholder)")
        await expect(step).to_contain_text(f"Words of step {number}.")
        await expect(step).to_be_in_viewport()
        await expect(step).to_be_focused()
        # It begins right below the bar, whatever was loaded above it meanwhile.
        await expect_top(long_page, number)
        await assert_small(long_page)
    await expect(long_page.locator(".outline [aria-current] .number")).to_have_text("4888")


async def expect_top(page, number):
    """Wait until a step begins below the bar, and nothing in the page waits for its content."""
    script = """([number]) => {
        const step = document.getElementById(`step-${number}`);
        if (!step) return 'waiting';
        const top = step.getBoundingClientRect().top;
        const bar = document.querySelector('header.bar').getBoundingClientRect().bottom;
        return document.querySelector('.placeholder') ? 'waiting' : Math.abs(top - bar - 12) <= 3 || top - bar;
    }"""
    await until(page, script, number)


async def test_what_is_on_the_screen_stays_when_something_above_it_changes(long_page):
    await long_page.evaluate("location.hash = '#step-1512'")
    await expect_top(long_page, 1512)
    step = "document.getElementById('step-1512').getBoundingClientRect().top"
    before = await long_page.evaluate(step)

    await long_page.evaluate("document.querySelector('#step-1510 button.more').click()")
    await until(long_page, f"() => Math.abs({step} - {before}) <= 1")
    await expect(long_page.locator("#step-1510 button.more")).to_have_count(0)
    assert abs(await long_page.evaluate(step) - before) <= 1


async def test_scrolling_through_the_run_shows_all_steps_in_order(long_page):
    seen = set()
    for _ in range(12):
        await long_page.mouse.move(700, 500)
        await long_page.mouse.wheel(0, 900)
        await until(long_page, "() => !document.querySelector('.placeholder')")
        numbers = await long_page.evaluate(
            "[...document.querySelectorAll('article')].map((one) => Number(one.id.slice(5)))"
        )
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        seen |= set(numbers)
        await assert_small(long_page)
    assert seen == set(range(1, max(seen) + 1))
    assert max(seen) > 30


async def test_very_long_line_is_shortened_and_its_whole_text_is_one_click_away(long_page):
    await long_page.evaluate("location.hash = '#step-500'")
    output = long_page.locator("#step-500:not(.placeholder) .output")
    await expect(output).to_contain_text("characters")
    assert await output.evaluate("(element) => element.innerText.length") < 30_000

    whole = await output.get_by_role("link", name="Show all").get_attribute("href")
    answer = await long_page.request.get(f"{'/'.join(long_page.url.split('/')[:3])}{whole}")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert await answer.text() == f"{'x' * LONG_LINE}\nend"


async def test_link_to_a_step_that_is_not_read_yet_shows_it_when_it_is(page, tmp_path, monkeypatch):
    # The first answer has the beginning of the log only.
    monkeypatch.setattr(steps, "_FIRST_BYTES", 2_000)
    events = [
        started("t"),
        *(text(f"Words of step {number}.") for number in range(2, 400)),
        RunFinished(outcome="completed"),
    ]
    write_log(tmp_path / "run", lines(events))
    async with serve(tmp_path) as url:
        await page.goto(f"{url}runs/run#step-321")
        await expect(page.locator("#step-321:not(.placeholder)")).to_be_in_viewport()
        await expect(page.locator("#step-321")).to_be_focused()
        assert page.url.endswith("#step-321")
