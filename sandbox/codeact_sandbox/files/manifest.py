"""Manifests: names and content hashes of the files of a workspace, to restore the same files later."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.protocol import checked_entries
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import safe_name

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


async def manifest_of(workspace: Workspace, sandbox: RunnerClient) -> Manifest | None:
    """List the files of a sandbox, with hashes of those that the host has too."""
    in_sandbox = workspace.in_sandbox
    if len(in_sandbox) > MAX_FILES:
        return None
    listing = (await sandbox.requests.file_request({"op": "list", "most": MAX_FILES + 1})).message
    entries = checked_entries(listing.get("files"))
    if listing.get("cut") or sum(len(entry["name"]) for entry in entries) > MAX_NAME_BYTES:
        return None
    sizes = {entry["name"]: entry["size"] for entry in entries if is_safe(entry["name"])}
    manifest = {}
    for name, size in sizes.items():
        known = in_sandbox.get(name)
        digest = known.digest if known is not None and known.signature[0] == size else None
        manifest[name] = f"{size}:{digest.hex()}" if digest is not None else fingerprint_of(size)
    left = MAX_READ_BYTES
    unknown = [name for name, fingerprint in manifest.items() if not has_hash(fingerprint)]
    for name in unknown[:MAX_READ_FILES]:
        if sizes[name] <= left:
            left -= sizes[name]
            # A small file that the host does not have, such as the module of functions.
            manifest[name] = await fingerprint_in_sandbox(sandbox, name, sizes[name])
    return manifest


async def fingerprint_in_sandbox(sandbox: RunnerClient, name: str, limit: int) -> str:
    """Make the fingerprint of a file of a sandbox, without its content where that can't be read."""
    total = size = 0
    digest = blake2b(digest_size=16)
    try:
        async for chunk, size in sandbox.requests.read_file(name):
            total += len(chunk)
            if max(total, size) > limit:
                return fingerprint_of(max(total, size))
            digest.update(chunk)
    except SandboxFileError:
        return fingerprint_of(size)
    return f"{total}:{digest.hexdigest()}"


def is_safe(name: str) -> bool:
    """Whether a file of this name can be on the host."""
    try:
        return safe_name(name) == name
    except ValueError:
        return False
