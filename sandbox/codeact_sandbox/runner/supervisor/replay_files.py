"""The host's requests about files while it replays the blocks of an old session."""

import os
import time

from ..shared import folders, packages
from . import home_folders

OPERATIONS = ("remove", "forget", "empty")
# Folders besides the workspace that code can write to.
TEMPORARY = ("/tmp", "/dev/shm")
CLEAR_S = 1.0
CACHES_S = 1.0


def handle(workspace, request):
    if request["op"] == "empty":
        return remove_temporary_files()
    if request["op"] == "forget":
        return remove_compiled_modules(workspace.root)
    return {"files": [_remove(workspace, file) for file in request["files"]]}


def _remove(workspace, file):
    """Remove a file, if it exists, and folders that become empty."""
    try:
        folder = workspace._folder(file["name"])
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.unlink(os.path.basename(file["name"]), dir_fd=folder)
    except FileNotFoundError:
        pass
    finally:
        os.close(folder)
    _remove_empty(workspace, os.path.dirname(file["name"]))


def _remove_empty(workspace, name):
    while name:
        try:
            folder = workspace._folder(name)
            try:
                os.rmdir(os.path.basename(name), dir_fd=folder)
            finally:
                os.close(folder)
        except OSError:
            return  # it is not empty
        name = os.path.dirname(name)


def remove_compiled_modules(root):
    """Remove compiled modules: Python would use an old one if its source was rewritten within the same second."""
    until = time.monotonic() + CACHES_S
    for top in (root, *TEMPORARY):
        for folder, _, names in os.walk(top):
            if time.monotonic() > until:
                return {}
            if os.path.basename(folder) == "__pycache__":
                _remove_all(folder, names)
    return {}


def _remove_all(folder, names):
    for name in names:
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:
            pass  # it belongs to another user


def remove_temporary_files():
    """Remove the content of the folders for temporary files and for packages, except what the user has mounted there."""
    until = time.monotonic() + CLEAR_S
    for folder in (*TEMPORARY, packages.FOLDER):
        if os.path.isdir(folder) and os.access(folder, os.W_OK):
            for _ in folders.remove_content(folder):
                if time.monotonic() > until:
                    raise OSError(62, "there are too many temporary files")
    home_folders.prepare("session")
    return {}
