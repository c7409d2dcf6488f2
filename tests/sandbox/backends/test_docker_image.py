"""Images on a real engine: found, pulled from a registry on loopback, derived with wheels, built from the recipe."""

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from docker.api.client import APIClient
from packaging.requirements import Requirement

from codeact_sandbox.backends.docker import build_index, default_image, image_requests
from codeact_sandbox.backends.docker import image as docker_image
from codeact_sandbox.backends.docker.build_index import BuildIndex
from codeact_sandbox.backends.docker.default_image import build_default_image
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image import DEFAULT_IMAGE, resolve_image
from codeact_sandbox.backends.docker.image_requests import find_image
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable
from tests.cases import case
from tests.sandbox.images import build_from, labelled_image, make_wheel, run, silent

pytestmark = pytest.mark.more

REFUSING = "127.0.0.1:1/x/y:z"


@pytest.fixture(scope="module")
def client() -> Iterator[APIClient]:
    with connect() as connected:
        if not find_image(connected, DEFAULT_IMAGE):
            pytest.fail(f"{DEFAULT_IMAGE} is missing: run `make image`")
        yield connected


@pytest.fixture
def unique() -> str:
    return f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"


@pytest.fixture
def keep_none(client: APIClient) -> Iterator[Callable[[str], str]]:
    """Takes the name of an image and removes that image when the test ends."""
    names: list[str] = []

    def remember(name: str) -> str:
        names.append(name)
        return name

    yield remember
    for name in reversed(names):
        if find_image(client, name):
            client.remove_image(name, force=True)


class TestDefaultImage:
    def test_default_image_runs_its_libraries_read_only_as_nobody(self, client):
        code = "import sys, matplotlib.pyplot as p, sympy; print(*sys.version_info[:2], p.get_backend(), sympy.Integer(2)**3)"
        assert run(client, DEFAULT_IMAGE, "sh", "-c", f"cp -r /etc/skel $HOME && python -c '{code}'") == (
            0,
            "3 13 Agg 8\n",
        )

    def test_default_image_has_the_libraries_that_it_promises(self, client):
        lists = [(default_image.SOURCE / name).read_text() for name in ("requirements.txt", "wheels.txt")]
        wanted = {Requirement(line.split()[0]).name for text in lists for line in text.splitlines() if "==" in line}
        code = f"from importlib.metadata import version; print(len([version(name) for name in {sorted(wanted)}]))"
        assert run(client, DEFAULT_IMAGE, "python", "-c", code) == (0, "26\n")

    def test_default_image_has_no_setuid_program_and_no_package_lists(self, client):
        script = "find / -xdev -type f -perm /6000; ls /var/lib/apt/lists; python3 -m pip --version >/dev/null"
        assert run(client, DEFAULT_IMAGE, "sh", "-c", script, user="0") == (0, "")


class TestResolving:
    def test_a_name_that_no_image_can_have(self, client):
        for name in ["", "Bad Name", "a:b:c", "UPPER/case"]:
            with case(name), pytest.raises(ValueError, match="name of"):
                resolve_image(client, name, progress=silent)

    def test_a_missing_image_of_another_version_is_not_pulled(self, client):
        for image, words in [
            ("autogen-codeact/sandbox:0.0", r"There is no image autogen-codeact/sandbox:0\.0 here: leave `image` out"),
            ("autogen-codeact/sandbox:0.2-none", "There is no image autogen-codeact/sandbox:0.2-none here"),
        ]:
            with case(image, words):
                said: list[str] = []
                with pytest.raises(SandboxUnavailable, match=words):
                    resolve_image(client, image, progress=said.append)
                assert said == []

    def test_a_registry_that_accepts_and_never_answers(self, client, monkeypatch):
        monkeypatch.setattr(image_requests, "PULL_STALL_S", 1.0)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            begun = time.monotonic()
            with pytest.raises(SandboxUnavailable, match=r"could not be pulled: .*timed out"):
                resolve_image(client, f"127.0.0.1:{listener.getsockname()[1]}/x/y:z", progress=silent)
            assert time.monotonic() - begun < 1 + 40

    def test_the_fallback_image_is_used_and_reported(self, client, monkeypatch, unique):
        said: list[str] = []
        monkeypatch.setattr(docker_image, "FALLBACK_IMAGE", DEFAULT_IMAGE)
        monkeypatch.setattr(docker_image, "DEFAULT_IMAGE", unique)
        assert resolve_image(client, unique, progress=said.append) == DEFAULT_IMAGE
        assert said == [
            f"{unique} not found; using {DEFAULT_IMAGE} instead: no numpy, pandas, scipy, sympy, matplotlib. "
            "Run `codeact image build` for the full image"
        ]

    def test_without_the_default_and_the_fallback_image_it_is_an_error(self, client, monkeypatch, unique):
        monkeypatch.setattr(docker_image, "FALLBACK_IMAGE", REFUSING)
        monkeypatch.setattr(docker_image, "DEFAULT_IMAGE", unique)
        with pytest.raises(SandboxUnavailable, match="the one that `codeact image build` makes"):
            resolve_image(client, unique, progress=silent)


class TestPackages:
    def test_a_local_wheel_is_installed_by_content_and_once_for_concurrent_requests(self, client, tmp_path, keep_none):
        wheel, said = make_wheel(tmp_path, "VALUE = 1"), list[str]()
        with ThreadPoolExecutor(4) as pool:
            calls = [
                pool.submit(resolve_image, client, DEFAULT_IMAGE, [str(wheel)], progress=said.append) for _ in range(4)
            ]
            (first,) = {keep_none(call.result()) for call in calls}
        assert [line for line in said if line.startswith("building ")] == said[:1]
        assert said[0] == f"building {first} with tinywheel-1.0-py3-none-any.whl (once) …"
        assert said[-1] == f"built {first}"
        assert run(client, first, "python3", "-c", "import tinywheel, numpy; print(tinywheel.VALUE)") == (0, "1\n")

        said.clear()
        assert resolve_image(client, DEFAULT_IMAGE, [str(wheel), str(wheel)], progress=said.append) == first
        assert said == []

        make_wheel(tmp_path, "VALUE = 2")
        second = keep_none(resolve_image(client, DEFAULT_IMAGE, [str(wheel)], progress=silent))
        assert second != first
        assert run(client, second, "python3", "-c", "import tinywheel; print(tinywheel.VALUE)") == (0, "2\n")

    def test_a_requirement_goes_through_pip_and_the_images_user_stays(self, client, unique, keep_none):
        base = build_from(client, f"FROM {DEFAULT_IMAGE}\nUSER 1234\n", keep_none(unique))
        wanted = ["numpy>=1", 'colorama; sys_platform == "win32"']  # there already; not for this platform
        derived = keep_none(resolve_image(client, base, wanted, progress=silent))
        found = find_image(client, derived)
        assert found["Config"]["User"] == "1234"
        assert not [entry for entry in found["Config"]["Env"] if entry.startswith("PIP_")]
        assert resolve_image(client, base, wanted[::-1], progress=silent) == derived

    def test_dependencies_of_a_wheel_are_not_fetched(self, client, tmp_path):
        wheel = make_wheel(tmp_path, f"VALUE = {uuid.uuid4().hex!r}", needs="not-here-1")
        with labelled_image(client) as base:
            with pytest.raises(SandboxStartError, match="what a local wheel needs must be given too") as caught:
                resolve_image(client, base, [str(wheel)], progress=silent)
            log = str(caught.value).partition("The end of the build log:\n")[2]
            assert "No matching distribution found for not-here-1" in log
            assert "x1b[" not in log

    def test_invalid_packages_are_refused_before_anything_runs(self, client):
        for entry in [
            "--index-url=http://evil.example",
            "-r requirements.txt",
            "numpy --index-url http://evil.example",
            "numpy; rm -rf /",
            "numpy && rm -rf /",
            "numpy\nRUN rm -rf /",
            "numpy @ http://x.example/y.zip\nRUN id",
            "numpy @ http://x.example/y.zip\r\nRUN id",
            "$(id)",
            "../numpy",
            "",
            " ",
            "/nowhere/tinywheel-1.0-py3-none-any.whl",
        ]:
            with case(entry), pytest.raises(ValueError, match=r"is not a package|There is no wheel"):
                resolve_image(client, REFUSING, [entry], progress=silent)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique: str, keep_none: Callable[[str], str]) -> Path:
    """The recipe's files in a folder of their own, for an image of another name, on a base that is here already."""
    for name in ("Dockerfile", "build-base.sh", *default_image._BUILD_FILES):
        (tmp_path / name).write_bytes((default_image.SOURCE / name).read_bytes())
    monkeypatch.setattr(default_image, "SOURCE", tmp_path)
    monkeypatch.setattr(default_image, "DEFAULT_IMAGE", keep_none(unique))
    monkeypatch.setattr(default_image, "BASE_IMAGE", DEFAULT_IMAGE)
    return tmp_path


class TestRecipe:
    def test_recipe_is_built_once_for_each_content(self, client, recipe, unique):
        (recipe / "install.sh").write_text("true\n")
        said: list[str] = []
        assert build_default_image(client, progress=said.append) == unique
        assert said[0] == f"building {unique} on {DEFAULT_IMAGE} …"
        assert said[-1].startswith(f"{unique} built in ")
        first = find_image(client, unique)
        assert first["Config"]["Labels"]["org.autogen-codeact.kind"] == "sandbox-image"

        said.clear()
        build_default_image(client, progress=said.append)
        assert said == [f"{unique} exists already, built from the same files"]

        (recipe / "packages.txt").write_text((recipe / "packages.txt").read_text() + "# changed\n")
        build_default_image(client, progress=silent)
        second = find_image(client, unique)
        assert second["Id"] != first["Id"]

    def test_a_step_that_fails_shows_the_log_and_leaves_no_image(self, client, recipe, unique):
        (recipe / "install.sh").write_text("echo halfway; exit 3\n")
        with pytest.raises(SandboxStartError, match=r"(?s)returned a non-zero code: 3.*Debian mirror.*halfway"):
            build_default_image(client, progress=silent)
        assert find_image(client, unique) is None

    @pytest.mark.parametrize(
        ("step", "variable", "address", "said"),
        [
            (
                "rm /usr/lib/python3.*/EXTERNALLY-MANAGED",
                "PIP_INDEX_URL",
                "http://127.0.0.1:9/simple",
                r"(?s)127\.0\.0\.1:9.*Packages come from .*PIP_INDEX_URL.*nothing-of-this-name",
            ),
            (
                "dpkg --purge libnss-myhostname",
                "CODEACT_DEBIAN_MIRROR",
                "http://127.0.0.1:9/named",
                r"(?s)Packages come from a Debian mirror.*CODEACT_DEBIAN_MIRROR.*127\.0\.0\.1:9/named",
            ),
        ],
        ids=["wheels", "debian package"],
    )
    def test_a_base_with_its_own_python_gets_packages_from_where_a_variable_says(
        self, client, recipe, unique, monkeypatch, keep_none, step, variable, address, said
    ):
        base = f"FROM {DEFAULT_IMAGE}\nRUN ln -s /usr/bin/python3 /usr/local/bin/python3; {step}\n"
        monkeypatch.setattr(default_image, "BASE_IMAGE", build_from(client, base, keep_none(f"{unique}-base")))
        monkeypatch.setenv(variable, address)
        (recipe / "requirements.txt").write_text("nothing-of-this-name==1\n")
        with pytest.raises(SandboxStartError, match=said):
            build_default_image(client, progress=silent)

    @pytest.mark.skipif(os.geteuid() != 0, reason="as another user it ends before the script")
    def test_without_a_registry_the_base_comes_from_the_script(self, client, recipe, unique, monkeypatch, keep_none):
        monkeypatch.setattr(default_image, "BASE_IMAGE", REFUSING)
        (recipe / "build-base.sh").write_text("echo build-base: packing >&2; mkdir $$; tar -C $$ -c .; rmdir $$\n")
        (recipe / "Dockerfile").write_text(
            "ARG BASE\nFROM ${BASE}\nARG CONTENT\nLABEL org.autogen-codeact.content=${CONTENT}\n"
        )
        monkeypatch.chdir(recipe)
        said: list[str] = []
        monkeypatch.setattr(default_image, "OWN_BASE", unique.partition(":")[0] + "-base")
        keep_none(f"{default_image.OWN_BASE}:{default_image._digest('build-base.sh', *default_image._BASE_FILES)[:16]}")
        # Its container needs a base with Python.
        monkeypatch.setattr(build_index, "serve_index", lambda *_: nullcontext(BuildIndex({})))
        build_default_image(client, progress=said.append)
        assert find_image(client, unique) is not None
        assert "build-base: packing" in said
        assert any("debootstrap instead" in line for line in said)
