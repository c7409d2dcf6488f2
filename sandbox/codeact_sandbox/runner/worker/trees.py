"""Operations on files and folders of the sandbox, for `file_service`."""

import contextlib
import errno
import fnmatch
import itertools
import os
import re
import stat

from ..shared import folders, packages

CHUNK = 256 * 1024
PART_PREFIX = ".codeact-part-"
MAX_EDITED = 64 * 1024 * 1024
# In characters; a list of more is cut.
MAX_ANSWER = 2 * 1024 * 1024
MAX_LINE_SHOWN = 2000
MAX_LINE = 1024 * 1024
SYSTEM_FOLDERS = ("/dev/", "/proc/", "/sys/")
# Folders besides the workspace that code can write to.
TEMPORARY = ("/tmp", "/dev/shm")
TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


# Looking


class Found:
    """What a search has found, up to a number and a size."""

    def __init__(self, most):
        self.items, self.cut = [], False
        self._most, self._room = most, MAX_ANSWER

    def add(self, item, *texts):
        """Add something; return False when there is no room for it."""
        self._room -= 64 + sum(map(len, texts))
        self.cut = len(self.items) >= self._most or self._room < 0
        if not self.cut:
            self.items.append(item)
        return not self.cut

    def answer(self):
        return {"found": self.items, "cut": self.cut}


def stat_(path):
    return _info(path, os.lstat(path))


def ls(path, most):
    found = Found(most)
    with os.scandir(path) as entries:
        some = list(itertools.islice(entries, most + 1))
    for entry in sorted(some, key=lambda each: each.name):
        name = _below(path, entry.name)
        if not found.add(_info(name, entry.stat(follow_symlinks=False)), name):
            break
    return found.answer()


def glob(pattern, path, most):
    found, matches = Found(most), _matcher(pattern)
    for name, _ in walk(path, None if "**" in pattern else pattern.count("/") + 1):
        if matches(name) and not found.add(_below(path, name), path, name):
            break
    return found.answer()


def grep(pattern, path, *, files, ignore_case, literal, most):
    try:
        search = re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0).search
    except (re.error, OverflowError) as error:
        raise ValueError("the pattern is not a regular expression: %s" % error) from None
    found, wanted = Found(most), _matcher(files if "/" in files else "**/" + files)
    if stat.S_ISDIR(os.stat(path).st_mode):
        names = (name for name, entry in walk(path) if wanted(name) and entry.is_file(follow_symlinks=False))
        searched = (_below(path, name) for name in names)
    else:
        searched = [path]
    for name in searched:
        for number, line in _lines(name):
            shown = line[:MAX_LINE_SHOWN]
            if search(line) and not found.add([name, number, shown], name, shown):
                return found.answer()
    return found.answer()


def walk(top, depth=None, on_error=None):
    """Yield what is below a folder, as (path from there, entry), each folder in the order of names; links are not followed."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            with os.scandir(os.path.join(top, prefix) if prefix else top) as found:
                entries = sorted(found, key=lambda each: each.name)
        except OSError as error:
            if not prefix:
                raise
            if on_error is not None:
                on_error(error)
            continue
        below = []
        for entry in entries:
            yield prefix + entry.name, entry
            if entry.is_dir(follow_symlinks=False) and (depth is None or prefix.count("/") + 1 < depth):
                below.append(prefix + entry.name + "/")
        waiting.extend(reversed(below))


def _below(path, name):
    return name if path == "." else os.path.join(path, name)


def _info(path, status):
    kind = TYPES.get(stat.S_IFMT(status.st_mode), "other")
    return [path, kind, status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime]


def _matcher(pattern):
    """Return a function that compares the parts of a path with those of a pattern; `**` is any number of folders."""
    tests = [None if part == "**" else re.compile(fnmatch.translate(part)).match for part in pattern.split("/")]

    def matches(names, done=0):
        if done == len(tests):
            return not names
        if tests[done] is None:
            return any(matches(names[skipped:], done + 1) for skipped in range(len(names) + 1))
        return bool(names and tests[done](names[0])) and matches(names[1:], done + 1)

    return lambda path: matches(path.split("/"))


def _lines(path):
    """Yield the numbered lines of a text file; of a long line in pieces, and nothing after a null byte."""
    try:
        file = open_regular(path)
    except OSError:
        return
    with file:
        number = 1
        while True:
            line = file.readline(MAX_LINE)
            if not line or b"\0" in line:
                return
            yield number, line.decode("utf-8", "replace").rstrip("\r\n")
            number += line.endswith(b"\n")


def open_regular(path, flags=0):
    """Open a regular file; opening a pipe would wait for its other end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags), "rb", CHUNK)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


# Single files and folders


def check(path):
    """Raise the error with which a file or folder can't be read."""
    os.close(os.open(os.path.join(path, ".") if os.path.isdir(path) else path, os.O_RDONLY))


def read(target, path, offset, size, most=None):
    with open_regular(path) as file:
        # With `most` it is for a host tool.
        if most is not None and os.readlink("/proc/self/fd/%d" % file.fileno()).startswith(SYSTEM_FOLDERS):
            raise OSError(errno.EPERM, "files of /dev, /proc and /sys can't be passed to host tools", path)
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, "it is too large: at most %d bytes can be passed now" % most, path)
        file.seek(offset)
        while size is None or size > 0:
            data = file.read(CHUNK if size is None else min(CHUNK, size))
            if not data:
                return
            target.write(data)
            size = None if size is None else size - len(data)


def write(source, path):
    """Write a file, and make the folders above it; one that exists keeps its mode.

    An absolute path is followed through links; in the workspace none is.
    """
    if path.startswith("/"):
        path = os.path.realpath(path)
        if not os.path.exists(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path), exist_ok=True)
    else:
        os.fchdir(folders.open_above(".", path, create=True))
        path = os.path.basename(path)
    mode = 0o644
    if os.path.isfile(path) and not os.path.islink(path):
        os.close(os.open(path, os.O_WRONLY))  # it may be protected
        mode = stat.S_IMODE(os.stat(path).st_mode)
    replace(path, iter(lambda: source.read(CHUNK), b""), mode)


def edit(path, old, new, everywhere):
    old, new = (text.encode("utf-8", "surrogateescape") for text in (old, new))
    path = os.path.realpath(path)
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_EDITED:
            raise OSError(errno.EFBIG, "larger than %d bytes, the most that is edited" % MAX_EDITED, path)
        content = file.read()
    count = content.count(old)
    if count == 0 or (count > 1 and not everywhere):
        reason = "found %d times: give a longer text that is there once, or replace_all=True" % count
        raise OSError(errno.EINVAL, "the text to replace was " + (reason if count else "not found"), path)
    replace(path, [content.replace(old, new)], stat.S_IMODE(status.st_mode))
    return count


def replace(path, chunks, mode, modified=None, part=None):
    """Write a file under another name, or to the empty file `part`, and give it its own when it is complete."""
    flags = os.O_CREAT | os.O_EXCL if part is None else os.O_NOFOLLOW
    part = part or os.path.join(os.path.dirname(path), PART_PREFIX + os.urandom(8).hex())
    file = os.open(part, os.O_WRONLY | flags | os.O_CLOEXEC, 0o600)
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(file, rest) :]
        os.fchmod(file, mode)
        if modified is not None:
            os.utime(file, (modified, modified))
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    finally:
        os.close(file)


def mkdir(path):
    os.makedirs(path, exist_ok=True)


def remove(path, recursive):
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    own = os.path.realpath(path)
    if os.path.commonpath([own, os.getcwd()]) == own:
        raise OSError(errno.EBUSY, "the workspace itself can't be removed", path)
    if recursive:
        for _ in folders.remove_content(path):
            pass
    os.rmdir(path)


# For the replay of an old session


def unlink(path, paths):
    """Remove files, if they exist, and folders that become empty."""
    for each in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(each)
        with contextlib.suppress(OSError):
            os.removedirs(os.path.dirname(each))


def clear(path):
    """Remove temporary files and packages, except what the user has mounted there."""
    for folder in (*TEMPORARY, packages.FOLDER):
        if os.path.isdir(folder) and os.access(folder, os.W_OK):
            for _ in folders.remove_content(folder):
                pass
    folders.make_home()
