"""What tests with a live model share."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
from autogen_core.models import UserMessage

from autogen_codeact.local_models import local_model
from autogen_codeact.local_models.client import LocalModelClient

STORY = [UserMessage(content="Tell a very long story about a river.", source="user")]


def component(folder: Path, *, max_tokens: int) -> Path:
    """Write the component of the small model into a file, and return that."""
    file = folder / "model.json"
    file.write_text(local_model(context=2048, max_tokens=max_tokens).dump_component().model_dump_json())
    return file


def slot(client: LocalModelClient) -> dict[str, Any]:
    """Return what the server says of its only slot."""
    address = client._address()
    answer = httpx.get(f"{address.url}/slots", headers={"Authorization": f"Bearer {address.key}"})
    return dict(answer.raise_for_status().json()[0])


async def until_it_generates(client: LocalModelClient) -> int:
    """Wait until the server generates an answer, and return its process."""
    while client._server is None or client._server.pid is None or not await asyncio.to_thread(_is_busy, client):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)
    return client._server.pid


async def is_free_within(client: LocalModelClient, seconds: float) -> bool:
    """Return whether the server generates nothing, after at most some seconds."""
    until = time.monotonic() + seconds
    while await asyncio.to_thread(_is_busy, client):
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.02)
    return True


def _is_busy(client: LocalModelClient) -> bool:
    return bool(slot(client)["is_processing"])
