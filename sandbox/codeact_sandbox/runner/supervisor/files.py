"""Files of the workspace, transferred in pieces that the host requests, so that a transfer never delays a result."""

import contextlib
import errno
import itertools
import json
import os
import stat
import time

from ..shared import folders

CHUNK = 256 * 1024
INLINE_FILE = 64 * 1024
INLINE_TOTAL = 256 * 1024
SCAN_LIMIT = 20000
# Listing the workspace blocks the supervisor, so it is bounded. The default limit of files is below this.
MAX_ENTRIES = 60000
MAX_LISTING_S = 1.0  # of processor time: a busy machine needs longer for the same files
MAX_DEPTH = 32
# Names are up to 4096 bytes long, and a list of files has to fit into a frame.
LIST_LIMIT = 1024 * 1024
MAX_UPLOADS = 64
UPLOAD_PREFIX = ".codeact-part-"
TOO_MANY_FILES = (
    "There are too many files in the workspace, or folders in folders: not all that were made or changed have been looked at "
    "and copied to the host."
)
NOT_REGULAR = "not a regular file"
FOLDER = "folder"  # the version of an empty one


class Files:
    """Reads, writes and watches the regular files below a folder; never through a symbolic link."""

    def __init__(self, root):
        self.root = root
        self._known = {}
        self._uploads = {}

    def handle(self, ident, request, data):
        """Answer one request of the host, with a message and bytes; the message has `error` if it could not be done."""
        try:
            op = request["op"]
            if op == "read":
                return self._read(request)
            if op == "changed":
                entries, contents, incomplete = self.changed()
                return {"files": entries, "notes": [TOO_MANY_FILES] if incomplete else []}, contents
            if op == "write":
                answer = self._write(ident, request, data)
            elif op == "list":
                answer = self._list(request)
            elif op == "folders":
                answer = self._make_folders(request["names"])
            else:
                answer = {"error": "unknown operation", "errno": 22}
            return answer, b""
        except OSError as error:
            self._drop(ident)
            return {"error": error.strerror or str(error), "errno": error.errno or 5}, b""
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            self._drop(ident)
            return {"error": "bad request: %s" % error, "errno": 22}, b""

    def _write(self, ident, request, data):
        if request.get("abandon"):
            self._drop(ident)
            return {}
        upload = self._uploads.get(ident)
        if upload is None:
            if len(self._uploads) >= MAX_UPLOADS:
                self._drop(next(iter(self._uploads)))  # the host has given it up
            folder = folders.open_above(self.root, request["name"], create=True)
            upload = self._uploads[ident] = Upload(folder, request["name"], UPLOAD_PREFIX + os.urandom(8).hex())
        upload.write(data)
        if request.get("final"):
            info = upload.commit(request.get("mode", 0o644))
            del self._uploads[ident]
            self._known[request["name"]] = _version_of(info)
        return {"written": len(data)}

    def _make_folders(self, names):
        """Make folders that the host has; their names end with a slash."""
        for name in names:
            os.close(folders.open_above(self.root, name, create=True))
            self._known[name] = FOLDER
        return {}

    def _drop(self, ident):
        upload = self._uploads.pop(ident, None)
        if upload is not None:
            upload.abandon()

    def _read(self, request):
        fd, info = self._open(request["name"])
        try:
            offset = request.get("offset", 0)
            data = os.pread(fd, min(request.get("size", CHUNK), CHUNK), offset)
        finally:
            os.close(fd)
        return {"size": info.st_size, "mode": stat.S_IMODE(info.st_mode), "offset": offset}, data

    def _open(self, name):
        folder = folders.open_above(self.root, name)
        try:
            # Without blocking, because opening a pipe waits for its other end.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(os.path.basename(name), flags, dir_fd=folder)
        finally:
            os.close(folder)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            raise OSError(22, NOT_REGULAR)
        return fd, info

    def changed(self):
        """Return what is new or changed since the last call: entries, bytes of small files, whether it is cut.

        Entries are files, and empty folders, whose names end with a slash.
        """
        entries, blobs, room = [], [], INLINE_TOTAL
        listing = Listing(self.root)
        listed, incomplete = 0, False
        # Removed files are forgotten: a session that makes and removes many would fill this process.
        before, self._known = self._known, {}
        for name, info in listing.files():
            known, version = before.get(name), _version_of(info)
            if known == version:
                self._known[name] = known
                continue
            entry = _entry(name, info)
            listed += _length(entry)
            if len(entries) >= SCAN_LIMIT or listed > LIST_LIMIT:
                incomplete = True
                if known is not None:
                    self._known[name] = known
                continue
            self._known[name] = version
            if version != FOLDER and info.st_size <= min(INLINE_FILE, room):
                blob = self._content(name)
                if blob is not None:
                    entry["inline"] = len(blob)
                    blobs.append(blob)
                    room -= len(blob)
            entries.append(entry)
        return entries, b"".join(blobs), incomplete or listing.cut

    def remember(self, path):
        """Do not report a file that the host already has."""
        with contextlib.suppress(OSError, ValueError):
            name = path[len(self.root) + 1 :]
            self._known[name] = _version_of(os.lstat(path))

    def _content(self, name):
        try:
            fd, _ = self._open(name)
        except OSError:
            return None
        try:
            return os.pread(fd, INLINE_FILE, 0)
        finally:
            os.close(fd)

    def _list(self, request):
        """List a folder, by default the workspace; with `folders`, also its empty ones."""
        listing = Listing(os.path.join(self.root, request.get("folder", "")))
        most, found, listed = request.get("most", SCAN_LIMIT), [], 0
        for name, info in listing.files():
            if name.endswith("/") and not request.get("folders"):
                continue
            found.append(_entry(name, info))
            listed += _length(found[-1])
            if len(found) >= most or listed > LIST_LIMIT:
                listing.cut = True
                break
        space = os.statvfs(self.root)
        return {"files": found, "cut": listing.cut, "free": space.f_bavail * space.f_frsize}


class Listing:
    """One listing of a folder and those in it, bounded in time and size."""

    def __init__(self, root):
        self.root = root
        self.cut = False
        self._left = MAX_ENTRIES
        self._until = time.process_time() + MAX_LISTING_S

    def files(self, prefix="", depth=0):
        """Yield regular files and empty folders, as (name, stat) in the order of names; then `cut` says whether it is all."""
        entries = self._entries(prefix)
        if prefix and not entries:
            yield prefix, os.lstat(os.path.join(self.root, prefix))
        for entry in entries:
            name = prefix + entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth >= MAX_DEPTH:
                        self.cut = True
                    elif entry.name != "__pycache__":
                        yield from self.files(name + "/", depth + 1)
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(UPLOAD_PREFIX):
                    yield name, entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed since the folder was listed
            if time.process_time() > self._until:
                self.cut = True
                return

    def _entries(self, prefix):
        try:
            with os.scandir(os.path.join(self.root, prefix) if prefix else self.root) as found:
                entries = list(itertools.islice(found, self._left + 1))
        except OSError as error:
            self.cut = self.cut or error.errno == errno.ENAMETOOLONG
            return []
        if len(entries) > self._left:
            self.cut = True
            entries.pop()
        self._left -= len(entries)
        return sorted(entries, key=lambda item: item.name)


class Upload:
    """A file that is being uploaded; it gets its own name when it is complete."""

    def __init__(self, folder, name, temporary):
        self.folder = folder
        self.name = os.path.basename(name)
        self.temporary = temporary
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(self.temporary, flags, 0o600, dir_fd=folder)
        except OSError:
            os.close(folder)
            raise

    def write(self, data):
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]

    def commit(self, mode):
        """Give the file its name and permissions; returns its stat."""
        os.fchmod(self.fd, mode & 0o777)
        os.replace(self.temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        info = os.fstat(self.fd)
        os.close(self.fd)
        os.close(self.folder)
        return info

    def abandon(self):
        with contextlib.suppress(OSError):
            os.unlink(self.temporary, dir_fd=self.folder)
        os.close(self.fd)
        os.close(self.folder)


def _entry(name, info):
    size = 0 if name.endswith("/") else info.st_size
    return {"name": name, "size": size, "mode": stat.S_IMODE(info.st_mode)}


def _length(entry):
    """Return at least the bytes of an entry in a frame, where one character may take six."""
    return len(json.dumps(entry["name"])) + 64


def _version_of(info):
    if stat.S_ISDIR(info.st_mode):
        return FOLDER
    # Code can set the modification time back, but not the change time.
    return (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode)
