"""Helpers for tests of the host's side of the workspace."""

from codeact_sandbox.files.workspace import HostFile, Workspace


def names(files: list[HostFile]) -> list[str]:
    return [file.name for file in files]


def send(workspace: Workspace) -> dict[str, bytes]:
    """What an executor does before a block."""
    sent = {file.name: b"".join(workspace.read(file)) for file in workspace.outgoing()}
    workspace.mark_synced(sent)
    workspace.mark_folders(workspace.new_folders)
    return sent
