"""A web service: each user has a session, uploads files, and sees the output of code while it is written (server-sent events).

python samples/web_service.py            serves 20 clients that it plays itself, and ends
python samples/web_service.py --serve    serves http://127.0.0.1:8000 until Ctrl-C

FastAPI is built on Starlette: `app.mount("/sandbox", service)` puts this service into a FastAPI program, whose `lifespan` is then
to open the pool.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from codeact_sandbox import AsyncSandbox, OutputChunk, SandboxError, SandboxFileError, SandboxPool

CLIENTS = 20
MAX_UPLOAD = 1_000_000
IDLE_S = 300  # a user's sandbox ends after five minutes without a request

# For one user more, the sandbox that was not used for longest ends; if all are in use, the answer is 503.
pool = SandboxPool(2, max_alive=CLIENTS, memory="128m", timeout=20)


def session(request: Request) -> AbstractAsyncContextManager[AsyncSandbox]:
    """Return the sandbox of the user. A real service takes the name from its login, never from the client."""
    user = request.headers.get("x-user")
    if not user:
        raise HTTPException(401, "who are you?")
    return pool.session(user, idle=IDLE_S)


async def run(request: Request) -> StreamingResponse:
    code, box = (await request.body()).decode(), session(request)
    return StreamingResponse(events(box, code), media_type="text/event-stream")


async def events(session: AbstractAsyncContextManager[AsyncSandbox], code: str) -> AsyncIterator[str]:
    """Yield pieces of output and the outcome; a client that goes away ends its code."""
    try:
        async with session as box, aclosing(box.stream(code)) as items:
            async for item in items:
                if isinstance(item, OutputChunk):
                    yield event("output", item.text)
                else:
                    yield event("result", {"outcome": item.outcome, "cpu_s": item.cpu_s, "notes": item.notes})
    except SandboxError as error:
        yield event("problem", str(error))


def event(kind: str, value: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


async def upload(request: Request) -> Response:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_UPLOAD:
            raise HTTPException(413, f"at most {MAX_UPLOAD:,} bytes")
    async with session(request) as box:
        await box.write(request.path_params["name"], bytes(data))
    return Response(status_code=204)


async def download(request: Request) -> Response:
    async with session(request) as box:
        return Response(await box.read(request.path_params["name"], MAX_UPLOAD))


async def leave(request: Request) -> Response:
    await pool.end_session(request.headers.get("x-user", ""))
    return Response(status_code=204)


async def problem(request: Request, error: Exception) -> Response:
    return Response(str(error), 404 if isinstance(error, SandboxFileError) else 503)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with pool:
        await pool.ready()  # what is wrong with the options is said now
        yield


service = Starlette(
    routes=[
        Route("/run", run, methods=["POST"]),
        Route("/files/{name:path}", upload, methods=["PUT"]),
        Route("/files/{name:path}", download),
        Route("/session", leave, methods=["DELETE"]),
    ],
    exception_handlers={SandboxError: problem},
    lifespan=lifespan,
)


async def play_client(number: int, address: str) -> str:
    """Upload a file, use it in two blocks of one session, and load what they have made."""
    headers = {"x-user": f"user{number}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=120) as client:
        (await client.put("/files/numbers.txt", content=f"{number}\n{number * 2}\n")).raise_for_status()
        for code in (
            "total = sum(map(int, open('numbers.txt')))",
            "print(total)\nopen('total.txt', 'w').write(str(total))",
        ):
            shown = (await client.post("/run", content=code)).text
            assert '"outcome": "ok"' in shown, shown
        found = (await client.get("/files/total.txt")).text
        await client.delete("/session")
    assert found == str(number * 3), found
    return found


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(service, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.05)
        if serving.done():
            await serving
    port = server.servers[0].sockets[0].getsockname()[1]
    totals = await asyncio.gather(*(play_client(number, f"http://127.0.0.1:{port}") for number in range(CLIENTS)))
    print(f"{len(totals)} clients have their own totals: {', '.join(totals)}")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    if "--serve" in sys.argv:
        uvicorn.run(service, port=8000)
    else:
        asyncio.run(main())
