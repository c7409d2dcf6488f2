"""A registry on loopback with one image of one layer, as slow or as mute as a test wants it."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Image:
    """The three blobs of an image with a single file in it."""

    def __init__(self, size: int = 200_000) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("payload")
            entry.size = size
            tar.addfile(entry, io.BytesIO(os.urandom(size)))
        plain = packed.getvalue()
        self.layer = gzip.compress(plain)
        history = {"architecture": "amd64", "os": "linux", "config": {"Labels": {"from": "registry"}}}
        self.config = json.dumps({**history, "rootfs": {"type": "layers", "diff_ids": [digest(plain)]}}).encode()
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": described("application/vnd.docker.container.image.v1+json", self.config),
                "layers": [described("application/vnd.docker.image.rootfs.diff.tar.gzip", self.layer)],
            }
        ).encode()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def described(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": digest(content)}


@contextmanager
def registry(image: Image, send_layer: Callable[[Callable[[bytes], object]], None]) -> Iterator[str]:
    """Serve `image` as `x/y:z`; `send_layer` gets the function that writes to the engine. Yields host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.path == "/v2/":
                self.reply(b"{}", "application/json")
            elif self.path in ("/v2/x/y/manifests/z", f"/v2/x/y/manifests/{digest(image.manifest)}"):
                self.reply(image.manifest, MANIFEST)
            elif self.path.endswith(digest(image.config)):
                self.reply(image.config, "application/octet-stream")
            elif self.path.endswith(digest(image.layer)):
                self.reply(b"", "application/octet-stream", length=len(image.layer))
                send_layer(self.wfile.write)
            else:
                error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self.reply(json.dumps(error).encode(), "application/json", status=404)

        def reply(self, body: bytes, kind: str, *, length: int | None = None, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.send_header("Docker-Content-Digest", digest(image.manifest))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                self.close_connection = True  # the engine has hung up, which some tests are about

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
