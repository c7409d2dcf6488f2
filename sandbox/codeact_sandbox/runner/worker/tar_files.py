"""Whole folders as tar files, into the sandbox and out of it."""

import errno
import os
import stat

from ..shared import folders
from . import trees

BLOCK = 512


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
    for number, (name, entry) in enumerate(trees.walk(path, on_error=_raise), start=1):
        if any((name + "/").startswith(each + "/") for each in exclude):
            continue
        status = entry.stat(follow_symlinks=False)
        kind = trees.TYPES.get(stat.S_IFMT(status.st_mode))
        if kind is None or entry.name.startswith(trees.PART_PREFIX):
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
    with trees.open_regular(path, os.O_NOFOLLOW) as file:
        left = size
        while left > 0:
            data = file.read(min(trees.CHUNK, left))
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
        while packed.read(trees.CHUNK):  # only its end shows whether it is whole
            pass
        if replace and os.path.isdir(os.path.join(path, aside)):
            trees.remove(os.path.join(path, aside), recursive=True)
        for name, mode, modified in reversed(folders_made):
            os.chmod(name, mode)
            os.utime(name, (modified, modified))
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError("the tar file is broken or cut: %s" % error) from None


def _set_aside(top):
    """Empty the files of a folder and move them into one inside: who has one open will find there what is put back."""
    aside, files = trees.PART_PREFIX + os.urandom(8).hex(), {}
    for name, entry in trees.walk(top):
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
        trees.replace(
            path,
            iter(lambda: content.read(trees.CHUNK), b""),
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
