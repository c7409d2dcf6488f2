"""Copying a folder, and removing one that sandboxed code has filled: however deep, large or closed by permissions."""

import contextlib
import errno
import itertools
import os

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PATH_ONLY = FOLDER | getattr(os, "O_PATH", 0)
BATCH = 64
SKELETON = "/etc/skel"


def copy_content(source, target):
    """Copy what is in a folder into another: files with their modes, folders, symbolic links.

    Not by the module shutil, which imports compressors, whose libraries each fork would have to map.
    """
    for entry in os.scandir(source):
        path = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        elif entry.is_dir():
            os.mkdir(path)
            copy_content(entry.path, path)
        elif entry.is_file():
            with open(entry.path, "rb") as original, open(path, "xb") as copy:
                copy.write(original.read())
                os.fchmod(copy.fileno(), entry.stat().st_mode & 0o777)


def open_above(root, name, create=False):
    """Open the folder that a file or folder below another is in, and follow no link below `root`."""
    parts = name.split("/")[:-1]
    if name.startswith("/") or ".." in parts:
        raise OSError(errno.EPERM, "not in the workspace")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        if part in ("", "."):
            continue
        below = -1
        try:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
            # Not for reading: gVisor would follow a link.
            below = os.open(part, PATH_ONLY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def make_home():
    """Make the home of code's user like that of a new one, if it is named and does not exist."""
    home = os.environ.get("HOME")
    if not home or os.path.exists(home):
        return
    try:
        os.makedirs(home)
    except OSError:
        return  # the user has chosen a path where nothing can be made
    if os.path.isdir(SKELETON):
        copy_content(SKELETON, home)


def remove_content(folder, keep=()):
    """Remove what is in a folder, in small steps: yields before each, so that the caller can pause or stop.

    Nested folders are first moved to the top, so their depth does not matter. What can't be removed stays, and so does what
    lies on another file system: the user has mounted it there.
    """
    top = os.open(folder, FOLDER)
    try:
        yield from _remove_entries(top, top, os.fstat(top).st_dev, keep)
    finally:
        os.close(top)


def _remove_entries(folder, top, device, keep=()):
    """Remove the entries of a folder; below the top, move its folders to the top instead."""
    removed = True
    while removed:
        removed = False
        for name, is_folder in _list_some(folder, keep):
            yield
            try:
                if not is_folder:
                    os.unlink(name, dir_fd=folder)
                else:
                    _allow_access(name, folder, device)
                    if folder == top:
                        yield from _remove_folder(name, top, device)
                    else:
                        os.rename(name, os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
                removed = True
            except OSError:
                continue


def _remove_folder(name, top, device):
    folder = os.open(name, FOLDER, dir_fd=top)
    try:
        yield from _remove_entries(folder, top, device)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _allow_access(name, folder, device):
    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    os.chmod(name, 0o700, dir_fd=folder)


def _list_some(folder, keep):
    with os.scandir(folder) as entries:
        others = (entry for entry in entries if entry.name not in keep)
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(others, BATCH)]
