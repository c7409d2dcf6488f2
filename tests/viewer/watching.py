"""Watches a page: what it asks of other servers, what it complains of, and which dialogs it opens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import ConsoleMessage, Dialog, Page, Request


class Watched:
    """What has happened in a page so far."""

    def __init__(self, page: Page, address: str) -> None:
        self.origin = "/".join(address.split("/")[:3]) + "/"
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.dialogs: list[str] = []
        page.on("request", self._request)
        page.on("console", self._message)
        page.on("pageerror", lambda error: self.messages.append(f"{error.name}: {error.message} {error.stack}"))
        page.on("dialog", self._dialog)

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:", "about:")):
            self.requests.append(request.url)

    def _message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.messages.append(message.text)

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        self._dismissing = asyncio.ensure_future(dialog.dismiss())


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Listen on a port of this machine, and note what connects to it.

    Yields:
        The port, and what was received.
    """
    received: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(b"")
        received[-1] = await reader.read(500)
        writer.close()

    server = await asyncio.start_server(note, "localhost", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], received


async def reading_problems(page: Page) -> list[Any]:
    """Return what axe-core finds in a page that hinders people with disabilities."""
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE_SCRIPT)
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations'], iframes: false})")
    return [
        (violation["id"], [(node["target"], node["failureSummary"]) for node in violation["nodes"]][:3])
        for violation in found["violations"]
    ]


async def until(page: Page, script: str, *arguments: Any, limit_s: float = 30.0) -> None:
    """Wait until a function in a page returns true. (The page's policy forbids what Playwright's own waiting does.)"""
    deadline = asyncio.get_running_loop().time() + limit_s
    while (value := await page.evaluate(script, list(arguments))) is not True:
        assert asyncio.get_running_loop().time() < deadline, f"{script} returned {value}"
        await asyncio.sleep(0.05)
