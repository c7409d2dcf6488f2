"""Making a copied or foreign log one of this user's own."""

from __future__ import annotations

from pathlib import Path

from autogen_codeact.runs.atomic_file import atomic_binary_file
from autogen_codeact.runs.chain import unsigned, user_chain
from autogen_codeact.runs.errors import RunError, RunFolderError
from autogen_codeact.runs.reader import load_run
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.runs.writer import MAX_LINE, lock


def adopt_run(path: Path) -> None:
    """Write new codes into the log of a run, so that it counts as made by this user on this machine."""
    folder = load_run(path).folder
    chain = user_chain(make=True)
    if chain is None:
        raise RunError(
            "Runs are signed with a key of yours, which has no place: make ~/.local/state (or $XDG_STATE_HOME) a folder that "
            "you can write."
        )
    with folder.open_log() as log:
        lock(log.fileno(), path)
        with atomic_binary_file(path / EVENTS, private=True, sync=True) as file:
            chain.begin(file.fileno())
            for line in folder.lines(MAX_LINE):
                if line.data is not None and line.data.endswith(b"}"):
                    file.write(chain.signed(unsigned(line.data)) + b"\n")
                elif not line.cut_off:
                    raise RunFolderError(f"{path} can't be continued: line {line.number} of its log is damaged.")
