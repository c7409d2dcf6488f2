"""Operations on files and whole folders, each in a process of the sandbox's user: the host asks, and trusts no answer.

Standard input has a JSON request after its length (4 bytes), then the operation's data. Standard output has JSON, or data for
operations that return some. An operation that fails ends with 1 and JSON with `error` and `errno` on standard error.
"""

import contextlib
import errno
import fnmatch
import itertools
import json
import os
import re
import stat
import struct

from ..shared import folders, packages

# The words of the command, which the worker does itself.
COMMAND = "codeact-files"
CHUNK = 256 * 1024
PART_PREFIX = ".codeact-part-"
MAX_EDITED = 64 * 1024 * 1024
# In characters; a list of more is cut.
MAX_ANSWER = 2 * 1024 * 1024
MAX_LINE_SHOWN = 2000
MAX_LINE = 1024 * 1024
BLOCK = 512
SYSTEM_FOLDERS = ("/dev/", "/proc/", "/sys/")
# Folders besides the workspace that code can write to.
TEMPORARY = ("/tmp", "/dev/shm")
TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def serve(source, target):
    """Do what a request says; return the exit status and what belongs on standard error."""
    try:
        (size,) = struct.unpack("!I", source.read(4))
        request = json.loads(source.read(size).decode())
        operation = OPERATIONS[request.pop("op")]
        if operation in (read, pack):
            operation(target, **request)
        else:
            answer = operation(source, **request) if operation in (write, unpack) else operation(**request)
            target.write(json.dumps(answer).encode())
        target.flush()
        return 0, b""
    except OSError as error:
        failure = {"errno": error.errno or errno.EIO, "error": error.strerror or str(error), "name": error.filename}
    except (ValueError, MemoryError, RecursionError, struct.error) as error:
        failure = {"errno": errno.EINVAL, "error": str(error) or type(error).__name__, "name": None}
    return 1, json.dumps(failure).encode()


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
        file = _open(path)
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


def _open(path, flags=0):
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
    with _open(path) as file:
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
    with _open(path) as file:
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


# Whole folders, as tar files


def pack(target, path, compressed, **limits):
    import gzip  # here, because each fork would have to map its library

    packed = gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1, mtime=0) if compressed else target
    for data in tar_of(path, **limits):
        packed.write(data)
    if compressed:
        packed.close()


def tar_of(path, most_entries, most_bytes, check_link=None, exclude=()):
    """Yield a folder as a tar file, with its files, folders and links; the host sends its own in the same way."""
    import tarfile

    types = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}
    total = 0
    for number, (name, entry) in enumerate(walk(path, on_error=_raise), start=1):
        if any((name + "/").startswith(each + "/") for each in exclude):
            continue
        status = entry.stat(follow_symlinks=False)
        kind = TYPES.get(stat.S_IFMT(status.st_mode))
        if kind is None or entry.name.startswith(PART_PREFIX):
            continue
        header = tarfile.TarInfo(name)
        header.type, header.size = types[kind], status.st_size if kind == "file" else 0
        header.mode, header.mtime = stat.S_IMODE(status.st_mode), max(0, int(status.st_mtime))
        if kind == "link":
            header.linkname = os.readlink(entry.path)
            if check_link is not None:
                check_link(name, header.linkname)
        total += header.size
        if number > most_entries or total > most_bytes:
            limits = "%d files and folders, or %d bytes" % (most_entries, most_bytes)
            raise OSError(errno.EFBIG, "the folder has more than %s" % limits, path)
        yield header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        if kind == "file":
            yield from _content(entry.path, header.size)
    yield bytes(2 * BLOCK)


def _raise(error):
    raise error


def _content(path, size):
    with _open(path, os.O_NOFOLLOW) as file:
        left = size
        while left > 0:
            data = file.read(min(CHUNK, left))
            if not data:
                raise OSError(errno.EAGAIN, "it became shorter while it was read: try again", path)
            yield data
            left -= len(data)
    yield bytes(-size % BLOCK)


def unpack(source, path, compressed, replace=False):
    import gzip
    import tarfile
    import zlib

    packed, folders_made = gzip.GzipFile(fileobj=source) if compressed else source, []
    try:
        os.makedirs(path, exist_ok=True)
        aside, files = _set_aside(path) if replace else (None, {})
        for _ in folders.remove_content(path, [aside]) if replace else ():
            pass
        with tarfile.open(fileobj=packed, mode="r|") as archive:
            for header in archive:
                archive.members = []  # it would keep them all
                _store(archive, header, path, folders_made, files)
        while packed.read(CHUNK):  # only its end shows whether it is whole
            pass
        if replace and os.path.isdir(os.path.join(path, aside)):
            remove(os.path.join(path, aside), recursive=True)
        for name, mode, modified in reversed(folders_made):
            os.chmod(name, mode)
            os.utime(name, (modified, modified))
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError("the tar file is broken or cut: %s" % error) from None


def _set_aside(top):
    """Empty the files of a folder and move them into one inside: who has one open will find there what is put back."""
    aside, files = PART_PREFIX + os.urandom(8).hex(), {}
    for name, entry in walk(top):
        put = os.path.join(top, aside, str(len(files)))
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.chmod(entry.path, 0o700)
            elif stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                if not files:
                    os.makedirs(os.path.dirname(put), exist_ok=True)
                os.rename(entry.path, put)
                files[name] = put
                os.chmod(put, 0o600)
                os.truncate(put, 0)
                for attribute in os.listxattr(put):
                    os.removexattr(put, attribute)
        except OSError:
            pass  # it is removed with all others, as far as possible
    return aside, files


def _store(archive, header, top, folders_made, files):
    parts = [part for part in header.name.split("/") if part not in ("", ".")]
    if ".." in parts or header.name.startswith("/"):
        raise ValueError("the tar file has a path that leaves its folder: %r" % header.name)
    path = os.path.join(top, *parts)
    _refuse_links(top, parts if header.isdir() else parts[:-1])
    if header.isdir():
        os.makedirs(path, exist_ok=True)
        folders_made.append((path, header.mode & 0o777, header.mtime))
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if header.isreg():
        content = archive.extractfile(header)
        replace(
            path,
            iter(lambda: content.read(CHUNK), b""),
            header.mode & 0o777,
            header.mtime,
            files.pop("/".join(parts), None),
        )
    elif header.issym():
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(header.linkname, path)
    else:
        raise ValueError("the tar file has something else than files, folders and links: %r" % header.name)


def _refuse_links(top, parts):
    """Raise an error if a link leads away from a path below a folder."""
    path = os.path.join(os.path.realpath(top), *parts)
    if os.path.realpath(path) != path:
        raise OSError(errno.ELOOP, "a link is where a folder should be", path)


OPERATIONS = {
    each.__name__.rstrip("_"): each
    for each in (stat_, ls, glob, grep, check, read, write, edit, mkdir, remove, unlink, clear, pack, unpack)
}
