"""Errors about the folder of a run."""

from __future__ import annotations


class RunError(Exception):
    """Something is wrong with a run's folder; the message says what to do."""


class RunFolderError(RunError):
    """There is no run in this folder, or it can't be read."""


class RunFileError(RunError):
    """A file of the run is missing or not what the log says."""
