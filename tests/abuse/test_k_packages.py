"""K28. Source packages: their code runs while they are built, in the sandbox or in a container of the engine."""

import io
import json
import socket
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.backends.docker.image import DEFAULT_IMAGE, resolve_image
from tests.sandbox.images import run, silent
from tests.sandbox.packages.conftest import configure

from .oracles import known_engine
from .subject import Subject, each_engine

BACKEND = """
import json, os, socket, zipfile

def look():
    found = {"secret": "SECRET_OF_THE_HOST" in os.environ, "host": os.path.exists(FOLDER), "reached": []}
    for where in (("127.0.0.1", PORT), ("172.17.0.1", PORT), ("169.254.169.254", 80)):
        try:
            socket.create_connection(where, 3).close()
            found["reached"].append(where)
        except OSError:
            pass
    return json.dumps(found)

def build_wheel(folder, settings=None, metadata=None):
    name = "evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("evil.py", f"found = {look()!r}")
        wheel.writestr("evil-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n")
        wheel.writestr("evil-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("evil-1.0.dist-info/RECORD", "evil.py,,\\n")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
NOTHING = {"secret": False, "host": False, "reached": []}


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A source package that looks for the host while it is built, as what the host's pip finds."""
    folder = tmp_path / "links"
    folder.mkdir()
    with socket.create_server(("0.0.0.0", 0)) as server:
        code = f"FOLDER, PORT = {str(folder)!r}, {server.getsockname()[1]}\n{BACKEND}"
        with tarfile.open(folder / "evil-1.0.tar.gz", "w:gz") as tar:
            for name, text in {"pyproject.toml": PROJECT, "backend.py": code}.items():
                entry = tarfile.TarInfo(f"evil-1.0/{name}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
        configure(monkeypatch, PIP_FIND_LINKS=str(folder), PIP_NO_INDEX="1")
        yield
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


# Case K28.
@each_engine
async def test_a_source_package_that_code_installs_is_built_in_the_sandbox(subject: Subject, evil: None) -> None:
    await subject.start({"allow_pip": True}, memory="512m", tmp="64m")
    result = await subject.run("pip install evil", "sh", 40)
    assert result.exit_code == 0, result
    assert json.loads(await subject.out("import evil\nprint(evil.found)")) == NOTHING


# Case K28.
def test_a_source_package_in_packages_is_built_in_a_container(evil: None, default_image: None) -> None:
    with closing(known_engine()) as client:
        image = resolve_image(client, DEFAULT_IMAGE, ["evil"], progress=silent)
        try:
            status, output = run(client, image, "python3", "-c", "import evil; print(evil.found)")
            assert (status, json.loads(output)) == (0, NOTHING)
        finally:
            client.remove_image(image, force=True)
