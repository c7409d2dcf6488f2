"""A folder of the host that lasts as long as its executor."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class TemporaryFolder:
    """A folder of its own for an executor without `work_dir`; goes at the latest with the process, without a warning."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="codeact-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
