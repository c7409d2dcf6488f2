"""A folder of the host that lasts as long as its executor."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from .errors import SandboxFileError


class TemporaryFolder:
    """A folder of its own for an executor without `work_dir`; goes at the latest with the process, without a warning."""

    def __init__(self) -> None:
        try:
            self.path = Path(tempfile.mkdtemp(prefix="codeact-"))
        except OSError as error:
            place = tempfile.gettempdir()
            problem = SandboxFileError(
                f"No temporary work_dir can be made in {place}: {error.strerror}. Free some space, or pass `work_dir=`."
            )
            problem.errno = error.errno
            raise problem from error
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
