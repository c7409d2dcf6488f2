"""Operations on files and whole folders, each in a process of the sandbox's user: the host asks, and trusts no answer.

Standard input has a JSON request after its length (4 bytes), then the operation's data. Standard output has JSON, or data for
operations that return some. An operation that fails ends with 1 and JSON with `error` and `errno` on standard error.
"""

import errno
import json
import struct

from . import tar_files, trees

# The words of the command, which the worker does itself.
COMMAND = "codeact-files"
OPERATIONS = {
    each.__name__.rstrip("_"): each
    for each in (
        *(trees.stat_, trees.ls, trees.glob, trees.grep, trees.check, trees.read, trees.write, trees.edit),
        *(trees.mkdir, trees.remove, trees.unlink, trees.clear, tar_files.pack, tar_files.unpack),
    )
}


def serve(source, target):
    """Do what a request says; return the exit status and what belongs on standard error."""
    try:
        (size,) = struct.unpack("!I", source.read(4))
        request = json.loads(source.read(size).decode())
        operation = OPERATIONS[request.pop("op")]
        if operation in (trees.read, tar_files.pack):
            operation(target, **request)
        else:
            answer = (
                operation(source, **request) if operation in (trees.write, tar_files.unpack) else operation(**request)
            )
            target.write(json.dumps(answer).encode())
        target.flush()
        return 0, b""
    except OSError as error:
        failure = {"errno": error.errno or errno.EIO, "error": error.strerror or str(error), "name": error.filename}
    except (ValueError, MemoryError, RecursionError, struct.error) as error:
        failure = {"errno": errno.EINVAL, "error": str(error) or type(error).__name__, "name": None}
    return 1, json.dumps(failure).encode()
