"""A folder of the host that lasts as long as its executor."""

from __future__ import annotations

import tempfile
import weakref

from .abandoned import make_folder, remove_folder
from .errors import SandboxFileError


class TemporaryFolder:
    """A folder of its own for an executor without `work_dir`; goes with the process, or at the next start when that is killed."""

    def __init__(self) -> None:
        try:
            self.path, lock = make_folder()
        except OSError as error:
            place = tempfile.gettempdir()
            problem = SandboxFileError(
                f"No temporary work_dir can be made in {place}: {error.strerror}. Free some space, or pass `work_dir=`."
            )
            problem.errno = error.errno
            raise problem from error
        self.remove = weakref.finalize(self, remove_folder, self.path, lock)
