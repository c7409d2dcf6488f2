"""Operations on files and folders anywhere in a sandbox, which a process of the sandbox's user does: methods of `ManagedSandbox`."""

from __future__ import annotations

import asyncio
import errno
import json
import struct
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.processes import Command
from codeact_sandbox.host.waiting import in_thread, iterating
from codeact_sandbox.runner.worker.trees import COMMAND
from codeact_sandbox.types.errors import SandboxFileError, SandboxTimeout
from codeact_sandbox.types.filenames import printable

T = TypeVar("T")
FileType = Literal["file", "folder", "link", "other"]
MAX_LISTED = 10_000
MAX_ANSWER = 64 * 1024**2
MAX_FAILURE = 64 * 1024
TRANSFER_TIMEOUT_S = 600.0
"""For whole folders; other operations may take as long as a block."""
Take = Callable[[bytes], Awaitable[object]]
Content = Iterable[bytes] | AsyncIterable[bytes]
