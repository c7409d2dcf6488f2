"""Errors about the folder of a run.

RunError
├── RunFolderError     it is not there, is not a run, or can't be read
├── RunVersionError    a newer version of this package has written it
└── RunFileError       one of its files is missing, was changed, or is none that a run may refer to
"""

from __future__ import annotations


class RunError(Exception):
    """Something is wrong with a run's folder; the message says what to do."""


class RunFolderError(RunError):
    """There is no run in this folder, or it can't be read."""


class RunVersionError(RunError):
    """A newer version of this package has written the run."""


class RunFileError(RunError):
    """A file of the run is missing or not what the log says."""
