"""The default image, built from its recipe on a real engine."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker import build_index, default_image
from codeact_sandbox.backends.docker.build_index import BuildIndex
from codeact_sandbox.backends.docker.default_image import build_default_image
from codeact_sandbox.backends.docker.image import DEFAULT_IMAGE
from codeact_sandbox.backends.docker.image_requests import Reporter, find_image
from codeact_sandbox.types.errors import SandboxStartError
from tests.sandbox.backends.test_docker_image import REFUSING, client, keep_none, unique
from tests.sandbox.images import build_from, silent

pytestmark = pytest.mark.more

__all__ = ["client", "keep_none", "unique"]


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

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("echo no mirror >&2; exit 1", r"(?s)Making the base failed.*CODEACT_DEBIAN_MIRROR.*no mirror"),
            ("head -c 300000 /dev/zero; echo broke off >&2; exit 1", r"(?s)Making the base failed.*broke off"),
        ],
    )
    def test_a_script_that_fails_leaves_no_image(self, client, recipe, unique, script, words):
        (recipe / "build-base.sh").write_text(f"{script}\n")
        with pytest.raises(SandboxStartError, match=words):
            default_image._bootstrap(client, unique, Reporter(silent))
        assert find_image(client, unique) is None
