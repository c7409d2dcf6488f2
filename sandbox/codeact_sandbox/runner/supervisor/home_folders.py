"""In process mode each block has its own home, so that no block leaves settings for the next one."""

import contextlib
import os
import time

from ..shared import folders

SKELETON = "/etc/skel"
# Settings of interactive shells: nobody types here.
FOR_SHELLS = (".bash_logout", ".bashrc", ".profile")
# A large home is removed in slices, so that the supervisor can serve others in between.
PAUSE_S = 0.002
SLICE_S = 0.002
# So many files are removed in each slice, however slow the machine is: a new home needs their room.
SLICE_STEPS = 64


class HomeFolders:
    """Creates and removes the homes of blocks."""

    def __init__(self, loop, prefix, protected):
        self._loop = loop
        self._prefix = prefix
        self._protected = protected
        self._folders, self._links = _read_skeleton() if prefix else ((), ())
        # Homes that are being removed, with generators of steps; and those that could not be removed.
        self._removals = []
        self._left = []

    def make_ahead(self):
        """Make a home for a future block, and open it, because a block may make its path inaccessible; return both."""
        home = self.make() if self._protected else None
        try:
            return home, home and os.open(home, folders.PATH_ONLY)
        except OSError:
            return home, None

    def make(self):
        """Make a home like a new user's, with links to the content of /etc/skel; return its path, or None if blocks share one."""
        if not self._prefix:
            return None
        if self._removals:
            self._remove_some()  # the last block may have used all space, for files that its home has
        home = "%s-%s" % (self._prefix, os.urandom(8).hex())
        with contextlib.suppress(OSError):  # a block may have used all space, and the next one may free some
            os.mkdir(home, 0o700)
            for name in self._folders:
                os.mkdir(os.path.join(home, name), 0o700)
            for name in self._links:
                os.symlink(os.path.join(SKELETON, name), os.path.join(home, name))
        return home

    def variables(self, worker):
        """Return the environment of a worker's block, with its home, which is made if there is none yet."""
        made_ahead, worker.home = worker.home, worker.home or self.make()
        if made_ahead:
            self._restore_modes(made_ahead)
        return {"HOME": worker.home} if worker.home else {}

    def _restore_modes(self, home):
        """Make a home accessible again: all blocks have the same user, and Landlock keeps none of them from `chmod`."""
        with contextlib.suppress(OSError):  # there was no space for all of it
            for name in ("", *self._folders):
                os.chmod(os.path.join(home, name), 0o700)

    def remove(self, home):
        """Remove a home: at once if it is as it was made, else in slices; and homes that could not be removed before."""
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
            self._left.append(home)
        if self._left:
            if not self._removals:
                self._loop.call_later(PAUSE_S, self._remove_slice)
            self._removals += [(each, _remove_in_steps(each)) for each in self._left]
            self._left.clear()

    def _remove_slice(self):
        self._remove_some()
        if self._removals:
            self._loop.call_later(PAUSE_S, self._remove_slice)

    def _remove_some(self):
        until, steps = time.monotonic() + SLICE_S, 0
        while self._removals and (steps < SLICE_STEPS or time.monotonic() < until):
            home, removal = self._removals[0]
            steps += 1
            try:
                next(removal)
                continue
            except (StopIteration, FileNotFoundError):
                pass
            except OSError:
                # A block that runs has closed the folder of homes; it is opened when that block ends.
                self._left.append(home)
            self._removals.pop(0)


def prepare(mode, protected_folder=None):
    """Give a session a home like a new user's; return the prefix of the homes of blocks, None if all share one."""
    home = os.environ.get("HOME")
    if not home or os.path.exists(home):
        return None
    if mode != "session" and protected_folder:
        return os.path.join(protected_folder, "home")
    try:
        os.makedirs(os.path.dirname(os.path.abspath(home)), exist_ok=True)
        if mode != "session":
            return home
        os.mkdir(home)
    except OSError:
        return None  # the user has chosen a path where nothing can be made
    if os.path.isdir(SKELETON):
        folders.copy_content(SKELETON, home)
    return None


def _read_skeleton():
    """Return the folders of the skeleton, parents first, and its other entries."""
    found, links = [], []
    for folder, names, others in os.walk(SKELETON):
        inside = os.path.relpath(folder, SKELETON)
        for name in names:
            path = os.path.normpath(os.path.join(inside, name))
            (links if os.path.islink(os.path.join(folder, name)) else found).append(path)
        links += [os.path.normpath(os.path.join(inside, name)) for name in others if name not in FOR_SHELLS]
    return found, links


def _remove_in_steps(home):
    os.chmod(home, 0o700)
    yield from folders.remove_content(home)
    os.rmdir(home)
