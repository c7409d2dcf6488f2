"""A small image for second engines: Python without libraries, a tenth of the default image, so that to copy it takes a second.

It has the bytecode files, without which each start would compile the standard library.
"""

import io
import tarfile
from contextlib import closing
from typing import Any

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.options import DEFAULT_IMAGE

PACK = """
import glob, os, subprocess, sys, sysconfig, tarfile
stdlib = sysconfig.get_path("stdlib")
left_out = ("test", "tests", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3", "site-packages",
            "dist-packages", "config-")
programs = [os.path.realpath(sys.executable), "/bin/sh", "/bin/cat", "/bin/ls", *glob.glob("/lib/*/libnss_myhostname.so.2")]
modules = glob.glob(f"{stdlib}/lib-dynload/*.so")
found = subprocess.run(["ldd", *programs, *modules], capture_output=True, text=True).stdout.split()
libraries = {os.path.normpath(each) for each in found if each.startswith("/") and not each.endswith(":")}
extensions = {os.path.normpath(each) for each in modules}
def keep(entry):
    return None if any(part.startswith(left_out) for part in entry.name.split("/")) else entry
with tarfile.open("/out.tar", "w", dereference=True) as out:
    for path in sorted(libraries - extensions) + programs:
        out.add(path)
    out.add(stdlib, filter=keep)
    for name in ("passwd", "group", "nsswitch.conf"):
        out.add(f"/etc/{name}")
    for name in {"/usr/bin/python3", "/usr/local/bin/python3", sys.executable}:
        if name not in programs:
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, programs[0]
            out.addfile(link)
    for name in ("tmp", "workspace", "proc", "sys", "dev", "var/tmp", "opt", "root"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        out.addfile(folder)
"""


def small_image() -> bytes:
    """The files of a small image, as a tar, made in a container of the default image."""
    with closing(connect()) as client:
        made: dict[str, Any] = client.create_container(
            DEFAULT_IMAGE, ["python3", "-c", PACK], network_disabled=True, user="0"
        )
        try:
            client.start(made["Id"])
            ended = client.wait(made["Id"], timeout=120)
            assert ended["StatusCode"] == 0, client.logs(made["Id"]).decode()
            chunks, _ = client.get_archive(made["Id"], "/out.tar")
            with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as packed:
                inner = packed.extractfile("out.tar")
                assert inner is not None
                return inner.read()
        finally:
            client.remove_container(made["Id"], force=True, v=True)
