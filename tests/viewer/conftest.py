"""A recorded run, and a real browser, for tests of the viewer.

Tests with the browser are `async`, and share one event loop in their module:

    pytestmark = pytest.mark.asyncio(loop_scope="module")
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, async_playwright, expect

from .runs import record_rich_run

WAIT_MS = 30_000
"""How long a page may take for anything that a test waits for, on a busy machine."""
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--font-render-hinting=none",
)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium; without one, skip the test, or fail it with REQUIRE_BROWSER=1."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    reason = "Chromium is not installed (on Debian: apt-get install chromium)"
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """Chromium, for all tests of a module; it ends with the module, and leaves no process."""
    expect.set_options(timeout=WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=WAIT_MS)
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A context for all pages of a module."""
    context = await browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
    context.set_default_timeout(WAIT_MS)
    yield context
    await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def only_page(context: BrowserContext) -> Page:
    """The page that the tests of a module use one after the other: a new one costs more than half a test."""
    return await context.new_page()


@pytest_asyncio.fixture(loop_scope="module")
async def page(only_page: Page, context: BrowserContext) -> AsyncIterator[Page]:
    """An empty page, 1280 × 800, to which no test before has added anything. Scripts of `add_init_script` would stay."""
    listeners: list[tuple[Any, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        add = only_page.on
        patch.setattr(only_page, "on", lambda *listener: (add(*listener), listeners.append(listener)))
        yield only_page
    for listener in listeners:
        only_page.remove_listener(*listener)
    for other in context.pages:
        if other is not only_page:
            await other.close()
    await only_page.unroute_all()
    await only_page.set_viewport_size(VIEWPORT)
    await only_page.emulate_media(color_scheme="light")
    await only_page.mouse.move(0, 0)
    await only_page.goto("about:blank")


@pytest_asyncio.fixture(loop_scope="module")
async def own_page(context: BrowserContext) -> AsyncIterator[Page]:
    """A page for one test, 1280 × 800."""
    async with await context.new_page() as page:
        yield page


@pytest.fixture(scope="session")
def rich_run(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recorded run of a team with all kinds of steps. It is shared: do not change it."""
    return asyncio.run(record_rich_run(tmp_path_factory.mktemp("runs") / "rich"))
