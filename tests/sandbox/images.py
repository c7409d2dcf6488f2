"""What the tests of images need: small images and wheels made on the spot, and a run of one command."""

import base64
import hashlib
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from docker.api.client import APIClient
from docker.errors import NotFound

from codeact_sandbox.backends.docker.image_requests import build, build_context
from codeact_sandbox.types.options import DEFAULT_IMAGE


def silent(_: str) -> None: ...


def build_from(client: APIClient, dockerfile: str, tag: str) -> str:
    with build_context({"Dockerfile": dockerfile.encode()}) as context:
        build(client, context, tag, progress=silent, advise=str, network_mode="none")
    return tag


@contextmanager
def labelled_image(client: APIClient) -> Iterator[str]:
    """Make an image with a label, which images on it inherit; all of them are removed at the end."""
    name = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
    build_from(client, f'FROM {DEFAULT_IMAGE}\nLABEL test="{name}"\n', name)
    try:
        yield name
    finally:
        for image in client.images(filters={"label": f"test={name}"}):
            with suppress(NotFound):  # it went with one before
                client.remove_image(image["Id"], force=True)


def run(client: APIClient, image: str, *command: str, user: str = "65534") -> tuple[int, str]:
    """Run a command as the sandbox would: no network, read-only root, an empty HOME filled from /etc/skel."""
    host = client.create_host_config(network_mode="none", read_only=True, tmpfs={"/tmp": "mode=1777"})
    container = client.create_container(
        image, list(command), user=user, host_config=host, environment={"HOME": "/tmp/home"}
    )
    try:
        client.start(container)
        code = client.wait(container, timeout=50)["StatusCode"]
        return code, client.logs(container).decode()
    finally:
        client.remove_container(container, force=True)


def make_wheel(
    folder: Path, body: str, *, name: str = "tinywheel", needs: str = "numpy", version: str = "1.0", scripts: str = ""
) -> Path:
    """A wheel by hand: a module, the three files of metadata, and the commands that it brings, as `name = module:function`."""
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        **({f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n"} if scripts else {}),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()}
    record = [f"{path},sha256={value.decode().rstrip('=')},{len(files[path])}" for path, value in hashes.items()]
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": "\n".join([*record, f"{info}/RECORD,,", ""])}.items():
            archive.writestr(path, text)
    return wheel
