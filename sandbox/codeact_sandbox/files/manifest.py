"""Manifests: names and content hashes of the files of a workspace, to restore the same files later."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from hashlib import blake2b

from codeact_sandbox.files.host_folder import HostFolder
from codeact_sandbox.files.workspace import Signature, Workspace, signature_of
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.messages import checked_entries
from codeact_sandbox.types.errors import SandboxFileError
from codeact_sandbox.types.filenames import safe_name

Manifest = dict[str, str]
"""Marks by name: a file's size and, behind a colon, the hash of its content, or nothing if that is not known."""

MAX_FILES = 1_000
MAX_NAME_BYTES = 256 * 1024
MAX_QUICK_FILES = 100
MAX_HASHED_BYTES = 64 * 1024**2
# For one manifest; hashing this much takes less than half a second, in a thread.
MAX_HASHED_AT_ONCE = 256 * 1024**2
# For files that exist only in the sandbox: each is read in every block.
MAX_READ_BYTES = 256 * 1024
MAX_READ_FILES = 16
_FRESH_NS = 50_000_000


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
    known = workspace.hashes
    new = any(name in in_sandbox and (name not in known or known[name][0] != in_sandbox[name]) for name in sizes)
    if new or len(sizes) > MAX_QUICK_FILES:
        manifest = await asyncio.to_thread(_marks, workspace, sizes, in_sandbox)
    else:
        manifest = _marks(workspace, sizes, in_sandbox)  # nothing to hash: a thread would cost more
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


def _marks(workspace: Workspace, sizes: dict[str, int], in_sandbox: dict[str, Signature]) -> Manifest:
    known = workspace.hashes
    for name in known.keys() - sizes.keys():
        del known[name]
    left = MAX_HASHED_AT_ONCE
    manifest = {}
    for name, size in sizes.items():
        manifest[name] = fingerprint_of(size)
        signature = in_sandbox.get(name)
        if signature is None or signature[0] != size or size > MAX_HASHED_BYTES:
            continue
        if name in known and known[name][0] == signature:
            manifest[name] = known[name][1]
        elif size <= left:
            left -= size
            manifest[name] = _hash(workspace, name, signature)
    return manifest


def _hash(workspace: Workspace, name: str, signature: Signature) -> str:
    """Hash a file of the host, if it is still the one that the sandbox has."""
    size = signature[0]
    try:
        fingerprint = fingerprint_of(size, HostFolder(workspace.root).chunks(name, size))
        status = os.lstat(workspace.root / name)
    except (OSError, SandboxFileError):
        return fingerprint_of(size)
    if signature_of(status) != signature:
        return fingerprint_of(size)
    # The timestamps of a file that was just written may not change with another write.
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _FRESH_NS:
        workspace.hashes[name] = (signature, fingerprint)
    return fingerprint
