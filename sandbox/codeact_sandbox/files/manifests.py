"""Manifests: names and content hashes of the files of a workspace, to restore the same files later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b

from codeact_sandbox.host.connection import Reply
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.host.requests import Requests
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import is_safe

Signature = tuple[int, int, int, int]


@dataclass(slots=True)
class Synced:
    """A file that both sides have."""

    signature: Signature  # its version on the host
    digest: bytes | None  # the digest of its content; None if it is large
    fresh: bool  # whether it may still change on the host without a new signature

    @property
    def fingerprint(self) -> str:
        """Its mark in a manifest."""
        return f"{self.signature[0]}:{self.digest.hex() if self.digest is not None else ''}"


Manifest = dict[str, str]
"""Marks by name: a file's size and, behind a colon, the hash of its content, or nothing if that is not known."""

MAX_FILES = 1_000
MAX_NAME_BYTES = 256 * 1024
# For the files that one block of a replay has changed; hashing this much takes less than half a second, in a thread.
MAX_HASHED_AT_ONCE = 256 * 1024**2
# For files that exist only in the sandbox: each is read in every block.
MAX_READ_BYTES = 256 * 1024
MAX_READ_FILES = 16


def fingerprint_of(size: int, chunks: Iterable[bytes] | None = None) -> str:
    """Make the fingerprint of a file."""
    if chunks is None:
        return f"{size}:"
    digest = blake2b(digest_size=16)
    for chunk in chunks:
        digest.update(chunk)
    return f"{size}:{digest.hexdigest()}"


def has_hash(fingerprint: str) -> bool:
    """Whether a fingerprint contains a hash of the content."""
    return not fingerprint.endswith(":")


async def make_manifest(
    requests: Requests, known: Mapping[str, Synced], listed: Future[Reply], reply: Reply, code_file: str | None
) -> Manifest | None:
    """Make the manifest of the files that a block has found, after its `reply`; None if they are too many.

    A file that only the sandbox has is read now, unless the block has changed it.
    """
    # Answers come in the order of the requests.
    listing = listed.result().message if listed.done() else {}
    entries = checked_entries(listing.get("files", []))
    too_many = listing.get("cut", True) or sum(len(entry["name"]) for entry in entries) > MAX_NAME_BYTES
    if too_many or reply.message.get("files_cut"):
        return None
    manifest, unknown = {}, {}
    for name, size in [(entry["name"], entry["size"]) for entry in entries if is_safe(entry["name"])]:
        same = known.get(name)
        if same is not None and same.digest is not None and same.signature[0] == size:
            manifest[name] = same.fingerprint
        else:
            manifest[name] = fingerprint_of(size)
            unknown[name] = size
    left = MAX_READ_BYTES
    entries = checked_entries(reply.message.get("files", [])) if unknown else []
    changed = {code_file, *(entry["name"] for entry in entries)}
    for name, size in list(unknown.items())[:MAX_READ_FILES]:
        if size <= left and name not in changed:
            left -= size
            # A small file that the host does not have, such as the module of functions.
            manifest[name] = await fingerprint_in_sandbox(requests, name, size)
    return manifest


async def fingerprint_in_sandbox(requests: Requests, name: str, limit: int) -> str:
    """Make the fingerprint of a file of a sandbox, without its content where that can't be read."""
    total, size = 0, limit
    digest = blake2b(digest_size=16)
    try:
        async for chunk, size in requests.read_file(name):
            total += len(chunk)
            if max(total, size) > limit:
                return fingerprint_of(max(total, size))
            digest.update(chunk)
    except SandboxFileError:
        return fingerprint_of(size)
    return f"{total}:{digest.hexdigest()}"
