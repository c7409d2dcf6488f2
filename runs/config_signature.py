"""Signatures of configurations in run logs: one that this user signed on this machine is loaded without further checks."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from autogen_codeact.runs.store import state_folder

KEY_BYTES = 32


def sign_config(component: dict[str, Any] | None) -> str | None:
    """Return the signature of a configuration; None if there is no configuration, or no key can be stored.

    Args:
        component: The configuration, as JSON values.
    """
    key = _key(make=True) if component is not None else None
    return _signature(key, component) if key is not None else None


def is_signed_by_user(component: dict[str, Any] | None, signature: str | None) -> bool:
    """Return whether this user has signed a configuration.

    Args:
        component: The configuration, as it is in the log.
        signature: The signature in the log, or None.
    """
    key = _key(make=False) if signature is not None else None
    return key is not None and hmac.compare_digest(_signature(key, component).encode(), str(signature).encode())


def _signature(key: bytes, component: dict[str, Any] | None) -> str:
    return hmac.digest(key, json.dumps(component, sort_keys=True).encode(), "sha256").hex()


def _key(*, make: bool) -> bytes | None:
    """Return the key of this user, which no other user can read; None if there is none."""
    try:
        path = state_folder() / "run.key"
        if make and not path.exists():
            _make_key(path)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            safe = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
            key = file.read(KEY_BYTES + 1) if safe else b""
    except (OSError, RuntimeError):  # a RuntimeError: this user has no home
        return None
    return key if len(key) == KEY_BYTES else None


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        with suppress(FileExistsError):
            os.link(part, path)  # never over the key that another process has made meanwhile
    finally:
        part.unlink()
