"""A recorded run, and a real browser, for tests of the viewer.

Tests with the browser are `async`, and share one event loop in their module:

    pytestmark = pytest.mark.asyncio(loop_scope="module")
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from .runs import record_rich_run

WAIT_MS = 30_000
"""How long a page may take for anything that a test waits for, on a busy machine."""
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
    """A context for all pages of a module: a new one costs three times as much as a page."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(WAIT_MS)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(context: BrowserContext) -> AsyncIterator[Page]:
    """A new page, 1280 × 800; what pages store is deleted at the end."""
    page = await context.new_page()
    try:
        yield page
        if page.url.startswith("http"):
            await page.evaluate("localStorage.clear()")
    finally:
        for each in context.pages:
            await each.close()


@pytest.fixture(scope="session")
def rich_run(bubblewrap: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recorded run of a team with all kinds of steps. It is shared: do not change it."""
    return asyncio.run(record_rich_run(tmp_path_factory.mktemp("runs") / "rich"))
