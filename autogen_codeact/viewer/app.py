"""The viewer's web application: its pages, and the JSON that they show. Needs the extra `viewer`."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from autogen_codeact.batch.errors import BatchError
from autogen_codeact.runs.errors import RunError, RunFileError
from autogen_codeact.runs.folder import FILES, RunFolder
from autogen_codeact.runs.results import StoredFile
from autogen_codeact.runs.text import download_name, visible
from autogen_codeact.viewer.catalog import BatchTable, Catalog, chosen
from autogen_codeact.viewer.control import RunControl
from autogen_codeact.viewer.static import CSP, NONCE, page_html, page_script, page_style
from autogen_codeact.viewer.steps import OpenRun
from codeact_sandbox.types.displays import IMAGES

MAX_STEPS_AT_ONCE = 200
MAX_SUMMARIES_AT_ONCE = 5_000
_MAX_ROWS = 1_000
_MAX_OPEN = 12
_MAX_WAITING = 40
_MAX_DIGITS = 15
_MAX_BODY = 16 * 1024
_MAX_QUERY = 500
_SEARCH_S = 20.0
_QUIET_S = 0.5
_SEARCHED_AT_ONCE = 50
_MAX_FOUND = 2_000
_HASH = re.compile(r"[0-9a-f]{64}")


class Viewer:
    def __init__(
        self, catalog: Catalog, control: RunControl | None, base: str, batch: BatchTable | None = None
    ) -> None:
        self.catalog = catalog
        self._batch = batch
        self._control = control
        self._base = base
        self._open: dict[str, OpenRun] = {}
        self._last_request = 0.0

    async def let_pages_finish(self, limit_s: float) -> None:
        """Wait until the pages of runs that have ended know it, and have asked for what was new."""
        deadline = time.monotonic() + limit_s
        while (now := time.monotonic()) < deadline and (  # noqa: ASYNC110 - of many pages
            any(each.waiting for each in self._open.values()) or now - self._last_request < _QUIET_S
        ):
            await asyncio.sleep(_QUIET_S / 10)

    async def close(self) -> None:
        """Let no page wait any longer."""
        for each in self._open.values():
            each.close()

    def routes(self) -> list[Route]:
        """Return the addresses below the token."""
        run = "/api/runs/{id}"
        return [
            Route("/", self.page),
            Route("/runs/{id}", self.page),
            Route("/page/{name:path}", self.static),
            Route("/api/runs", self.runs),
            Route("/api/batch", self.batch),
            Route(run, self.header),
            Route(f"{run}/summaries", self.summaries),
            Route(f"{run}/steps", self.steps),
            Route(f"{run}/search", self.search),
            Route(f"{run}/output/{{step:int}}", self.output),
            Route(f"{run}/files/{{sha256}}", self.file),
            Route(f"{run}/changes", self.changes),
            Route(f"{run}/answer", self.answer, methods=["POST"]),
            Route(f"{run}/stop", self.stop, methods=["POST"]),
        ]

    # Pages

    async def page(self, request: Request) -> Response:
        """Answer with the page, which is the same for the list and for a run."""
        # Styles of displays are shown in frames, which inherit the page's policy.
        nonce = secrets.token_urlsafe(16)
        page = page_html().replace("__BASE__", self._base).replace(NONCE, nonce)
        page = page.replace("<body>", '<body class="of-batch">' if self._batch is not None else "<body>")
        policy = CSP.replace("style-src 'self'", f"style-src 'self' 'nonce-{nonce}'")
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    async def static(self, request: Request) -> Response:
        match request.path_params["name"]:
            case "page.js":
                return Response(page_script(), media_type="text/javascript")
            case "style.css":
                return Response(page_style(), media_type="text/css")
        raise HTTPException(404, "There is no such file.")

    # Data

    async def batch(self, request: Request) -> Response:
        if self._batch is None:
            raise HTTPException(404, "There is no batch.")
        return _json(await asyncio.to_thread(self._batch.page, *_list_query(request)))

    async def runs(self, request: Request) -> Response:
        query, offset, limit = _list_query(request)

        def look() -> dict[str, Any]:
            rows, total, reading = self.catalog.rows()
            found = chosen(rows, query)
            return {
                "runs": found[offset : offset + limit],
                "total": total,
                "matched": len(found),
                "indexing": reading,
                "folder": visible(str(self.catalog.folder)) if self.catalog.folder is not None else None,
            }

        return _json(await asyncio.to_thread(look))

    async def header(self, request: Request) -> Response:
        return _json(await self._run(request).header())

    async def summaries(self, request: Request) -> Response:
        run, first, last = self._run(request), *_range(request, MAX_SUMMARIES_AT_ONCE)
        await run.read_to(first)
        return _json(await run.call(lambda steps: steps.summaries(first, last)))

    async def steps(self, request: Request) -> Response:
        run, first, last = self._run(request), *_range(request, MAX_STEPS_AT_ONCE)
        await run.read_to(first)
        body = await run.call(lambda steps: json.dumps(steps.steps(first, last), allow_nan=False).encode())
        return Response(body, media_type="application/json")

    async def search(self, request: Request) -> Response:
        """Answer with the numbers of the steps that have a text in them, as far as they are found in a limited time."""
        run, text = self._run(request), request.query_params.get("q", "")[:_MAX_QUERY].strip()
        found: list[int] = []
        await run.read_to(sys.maxsize)
        began, total = time.monotonic(), await run.call(len)
        at = 1
        while text and at <= total and time.monotonic() - began < _SEARCH_S and len(found) < _MAX_FOUND:
            part = range(at, at + _SEARCHED_AT_ONCE)
            found += await run.call(lambda steps, part=part: steps.search(text, part))  # type: ignore[misc]
            at = part.stop
        return _json({"steps": found, "complete": not text or at > total})

    async def output(self, request: Request) -> Response:
        """Answer with the whole output or text of a step, as it is: browsers show it as text."""
        number = int(request.path_params["step"])
        text = await self._run(request).call(lambda steps: steps.output(number))
        if text is None:
            raise HTTPException(404, f"The run has no step {number}.")
        body = await asyncio.to_thread(lambda: text.encode("utf-8", "replace"))
        return Response(body, media_type="text/plain; charset=utf-8")

    async def file(self, request: Request) -> Response:
        """Answer with a file of the run: images are shown, everything else is a download."""
        digest = request.path_params["sha256"]
        kind, name = request.query_params.get("type", ""), request.query_params.get("name", "")
        return await self._run(request).call(lambda steps: _file_answer(steps.view.run.folder, digest, kind, name))

    # Live

    async def changes(self, request: Request) -> Response:
        """Answer with what is new in a run, when something is."""
        run, since = self._run(request), _number(request, "since", 0)
        if sum(each.waiting for each in self._open.values()) >= _MAX_WAITING:
            raise HTTPException(503, "Too many pages wait for changes.")
        shown = request.query_params.get("questions", "").split(",")
        known = {int(each) for each in shown if each.isdecimal() and len(each) <= _MAX_DIGITS}
        changes = await run.changes(since, known)
        self._last_request = time.monotonic()  # the page asks for the steps now
        return _json(changes)

    async def answer(self, request: Request) -> Response:
        """Answer a question of a run that goes on, or waits."""
        run, body = self._run(request), await _body(request)
        number, approve = body.get("question"), body.get("approve")
        if type(number) is not int or type(approve) is not bool:
            raise HTTPException(400, 'Send {"question": number, "approve": true or false}.')
        was_open = run.control is not None and run.control.answer(number, approve=approve)
        if not was_open and not await asyncio.to_thread(run.kept.answer, number, approve=approve):
            raise HTTPException(409, "The question is no longer open: it was answered, or is not needed any more.")
        return _json({})

    async def stop(self, request: Request) -> Response:
        control = self._run(request).control
        await _body(request)
        if control is None:
            raise HTTPException(409, "This run can't be controlled from here: start it with `codeact run --view`.")
        control.stop()
        return _json({})

    def _run(self, request: Request) -> OpenRun:
        self._last_request = time.monotonic()
        name = request.path_params["id"]
        path = self.catalog.locate(name)
        if path is None:
            raise HTTPException(404, "There is no such run.")
        if name not in self._open:
            self._close_unused()
            control = self._control if self._control is not None and self._control.run == path else None
            self._open[name] = OpenRun(path, name, control)
        self._open[name] = self._open.pop(name)  # the last used one is the last
        return self._open[name]

    def _close_unused(self) -> None:
        unused = [name for name, each in self._open.items() if not each.waiting]
        for name in unused[: max(0, len(self._open) - _MAX_OPEN + 1)]:
            del self._open[name]


def _file_answer(folder: RunFolder, digest: str, kind: str, name: str) -> Response:
    """Return a file of a run as an answer that can't act as a part of our page. Call it in a thread."""
    if not _HASH.fullmatch(digest):
        raise HTTPException(404, "A file's name is its SHA-256 hash in hexadecimal digits.")
    try:
        size = (folder.path / FILES / digest).lstat().st_size
    except OSError:
        raise RunFileError("The run has no such file.") from None
    data = folder.read_file(StoredFile(sha256=digest, size=size))
    if kind in IMAGES:
        return Response(data, media_type=kind, headers={"Content-Disposition": "inline"})
    plain = download_name(re.sub(r"[^A-Za-z0-9._-]", "_", name[-100:])) or digest[:16]
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(download_name(name) or plain, safe='')}"
    return Response(data, media_type="application/octet-stream", headers={"Content-Disposition": disposition})


def make_app(viewer: Viewer) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await viewer.close()

    return Starlette(
        routes=viewer.routes(),
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _http_error,
            **dict.fromkeys((RunError, BatchError, OSError), _run_error),
            500: _defect,
        },
    )


def _json(value: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in ASCII, which can have whatever was in a log."""
    body = json.dumps(value, allow_nan=False).encode("ascii")
    return Response(body, status_code, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": error.detail}, status_code=error.status_code, headers=error.headers)


async def _run_error(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, RunFileError) else 422
    return _json({"error": str(error)}, status_code=status)


async def _defect(request: Request, error: Exception) -> Response:
    return _json({"error": f"The viewer failed: {type(error).__name__}."}, status_code=500)


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > _MAX_BODY:
            raise HTTPException(413, "The request is too long.")
    try:
        body = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The request is not a JSON object.")
    return body


def _list_query(request: Request) -> tuple[dict[str, str], int, int]:
    query = {name: value[:_MAX_QUERY] for name, value in request.query_params.items()}
    return query, _number(request, "offset", 0), min(_number(request, "limit", 100), _MAX_ROWS)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isdecimal() and text.isascii() and len(text) <= _MAX_DIGITS):
        raise HTTPException(400, f"{name} must be a whole number.")
    return int(text)


def _range(request: Request, most: int) -> tuple[int, int]:
    first = max(1, _number(request, "from", 1))
    return first, min(_number(request, "to", first + most - 1), first + most - 1)
