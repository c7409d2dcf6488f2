"""In process mode each block has its own home, so that no block leaves settings for the next one."""

import os
import time

from . import folders

SKELETON = "/etc/skel"
# Removing a full one must not keep PID 1 from anything else.
PAUSE_S = 0.002
SLICE_S = 0.002


class Homes:
    """Creates and removes the homes of blocks.

    Args:
        after: Calls something after some seconds.
        base: Prefix of their paths; None if blocks share a folder that the user has set.
        protected: Whether blocks can't change entries at such paths, except their own home.
    """

    def __init__(self, after, base, protected):
        self._after = after
        self._base = base
        self._protected = protected
        self._folders, self._links = _plan() if base else ((), ())
        self._removing = []

    def make_ahead(self):
        """Make a home for a future block; None if earlier blocks could write to it."""
        return self.make() if self._protected else None

    def make(self):
        """Make a home like a new user's, with the content of /etc/skel, which is shared and read-only.

        Returns:
            Its path; None if blocks share one. If there is no space, the path does not exist.
        """
        if not self._base:
            return None
        home = "%s-%s" % (self._base, os.urandom(8).hex())
        try:
            os.mkdir(home, 0o700)
            for name in self._folders:
                os.mkdir(os.path.join(home, name), 0o700)
            for name in self._links:
                os.symlink(os.path.join(SKELETON, name), os.path.join(home, name))
        except OSError:
            pass  # a block may have used all space, and the next one may free some
        return home

    def lacks(self, home):
        """Whether there was no room for one that was made ahead."""
        return home is not None and not os.path.isdir(home)

    def variables(self, worker):
        """The environment of a worker's block, by which it finds its home, which is made if there is none yet."""
        ahead, worker.home = worker.home, worker.home or self.make()
        if ahead:
            self._open(ahead)
        return {"HOME": worker.home} if worker.home else {}

    def _open(self, home):
        """Open one that was made ahead to its user, who all blocks are: Landlock keeps none of them from `chmod`."""
        try:
            for name in ("", *self._folders):
                os.chmod(os.path.join(home, name), 0o700)
        except OSError:
            pass  # there was no room for all of it

    def remove(self, home):
        """Remove a home; a large one in steps."""
        try:
            # A block may have replaced a folder by a link.
            if any(os.path.islink(os.path.join(home, name)) for name in self._folders):
                raise NotADirectoryError(home)
            for name in self._links:
                os.unlink(os.path.join(home, name))
            for name in reversed(self._folders):
                os.rmdir(os.path.join(home, name))
            os.rmdir(home)
        except OSError:
            self._removing.append(_dismantle(home))
            if len(self._removing) == 1:
                self._after(PAUSE_S, self._go_on)

    def _go_on(self):
        until = time.monotonic() + SLICE_S
        while self._removing and time.monotonic() < until:
            try:
                next(self._removing[0])
            except (StopIteration, OSError):
                self._removing.pop(0)
        if self._removing:
            self._after(PAUSE_S, self._go_on)


def prepare(mode, closed=None):
    """Give a session a home like a new user's, with the content of /etc/skel.

    Args:
        mode: `process` or `session`.
        closed: Folder that blocks can't change, or None.

    Returns:
        Path that the names of blocks' homes begin with; None where there is one home for all, or none can be made.
    """
    home = os.environ.get("HOME")
    if not home or os.path.exists(home):
        return None
    if mode != "session" and closed:
        return os.path.join(closed, "home")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(home)), exist_ok=True)
        if mode != "session":
            return home
        os.mkdir(home)
    except OSError:
        return None  # the user has named a place where nothing can be made
    if os.path.isdir(SKELETON):
        folders.copy_content(SKELETON, home)
    return None


def _plan():
    """The folders of the skeleton, parents first, and its other entries."""
    folders, links = [], []
    for folder, names, others in os.walk(SKELETON):
        inside = os.path.relpath(folder, SKELETON)
        for name in names:
            path = os.path.normpath(os.path.join(inside, name))
            (links if os.path.islink(os.path.join(folder, name)) else folders).append(path)
        links += [os.path.normpath(os.path.join(inside, name)) for name in others]
    return folders, links


def _dismantle(home):
    os.chmod(home, 0o700)
    yield from folders.remove_content(home)
    os.rmdir(home)
