"""A folder of the host that lasts as long as its executor."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import weakref

from autogen_codeact.sandbox.errors import SandboxFileError
from autogen_codeact.sandbox.files.abandoned import make_folder, remove_folder

logger = logging.getLogger("autogen_codeact")

REMOVE_TIMEOUT_S = 60.0


class TemporaryFolder:
    """The folder of an executor without `work_dir`; removed with the process, or at the next start if that was killed."""

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
        self._remove = weakref.finalize(self, remove_folder, self.path, lock)

    async def remove(self) -> None:
        """Remove it with its content in a thread, which continues after `REMOVE_TIMEOUT_S`."""
        removing = asyncio.get_running_loop().run_in_executor(None, self._remove)
        done, _ = await asyncio.wait({removing}, timeout=REMOVE_TIMEOUT_S)
        if not done:
            logger.warning("the temporary folder %s is still being removed after %g s", self.path, REMOVE_TIMEOUT_S)
