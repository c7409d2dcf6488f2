"""The default image, built from its recipe on a real engine."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import codeact_sandbox
from codeact_sandbox.backends.docker import default_image
from codeact_sandbox.backends.docker.default_image import build_default_image, why_no_bootstrap
from codeact_sandbox.backends.docker.image import DEFAULT_IMAGE
from codeact_sandbox.backends.docker.image_requests import Reporter, find_image
from codeact_sandbox.types.errors import SandboxStartError
from tests.sandbox.backends.test_docker_image import REFUSING, client, keep_none, unique
from tests.sandbox.images import build_from, group_ends, silent

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
    def test_recipe_lies_beside_the_package(self):
        beside = Path(str(codeact_sandbox.__file__)).parent / "docker"
        assert beside.samefile(default_image.SOURCE)
        assert not (beside / "__init__.py").exists()

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

    def test_force_builds_anew_also_without_the_registry(self, client, recipe, unique, monkeypatch, keep_none):
        (recipe / "install.sh").write_text("true\n")
        monkeypatch.setattr(default_image, "BASE_IMAGE", keep_none("127.0.0.1:1/test/base:1"))
        client.tag(DEFAULT_IMAGE, "127.0.0.1:1/test/base", "1")
        build_default_image(client, progress=silent)
        first, said = find_image(client, unique), list[str]()
        build_default_image(client, progress=said.append, force=True)
        second = find_image(client, unique)
        assert second["Id"] != first["Id"]
        assert find_image(client, first["Id"]) is None
        assert "127.0.0.1:1/test/base:1 could not be pulled again; using the one that is here" in said

    def test_a_step_that_fails_shows_the_log_and_leaves_no_image(self, client, recipe, unique):
        (recipe / "install.sh").write_text("echo halfway; exit 3\n")
        with pytest.raises(SandboxStartError, match=r"(?s)returned a non-zero code: 3.*Debian mirror.*halfway"):
            build_default_image(client, progress=silent)
        assert find_image(client, unique) is None

    def test_slim_is_an_image_of_its_own_from_its_own_list(self, client, recipe, unique, monkeypatch, keep_none):
        slim = keep_none(unique.replace(":1", ":1-slim"))
        monkeypatch.setattr(default_image, "SLIM_IMAGE", slim)
        (recipe / "install.sh").write_text('[ "$1" = slim ]\n')
        said: list[str] = []
        assert build_default_image(client, progress=said.append, variant="slim") == slim
        assert find_image(client, unique) is None
        assert (default_image._own_base("slim"), default_image._own_base("default")) == (
            f"{default_image._own_base('default')}-slim",
            default_image._own_base("slim").removesuffix("-slim"),
        )
        said.clear()
        build_default_image(client, progress=said.append, variant="slim")
        assert said == [f"{slim} exists already, built from the same files"]

    @pytest.mark.parametrize(
        ("step", "variable", "address", "said"),
        [
            (
                "rm /usr/lib/python3.*/EXTERNALLY-MANAGED",
                "PIP_INDEX_URL",
                "http://127.0.0.1:9/simple",
                r"(?s)wheels come from the package index .*127\.0\.0\.1.*another index in PIP_INDEX_URL.*nothing-of-this-name",
            ),
            (
                "dpkg --purge libnss-myhostname",
                "CODEACT_DEBIAN_MIRROR",
                "http://127.0.0.1:9/named",
                r"(?s)packages come from a Debian mirror.*CODEACT_DEBIAN_MIRROR.*127\.0\.0\.1:9/named",
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
        monkeypatch.setattr(default_image, "_has_debootstrap", lambda: True)
        (recipe / "build-base.sh").write_text("echo build-base: packing >&2; mkdir $$; tar -C $$ -c .; rmdir $$\n")
        (recipe / "Dockerfile").write_text(
            "ARG BASE\nFROM ${BASE}\nARG CONTENT\nLABEL org.autogen-codeact.content=${CONTENT}\n"
        )
        monkeypatch.chdir(recipe)
        said: list[str] = []
        keep_none(default_image._own_base("slim"))
        monkeypatch.setattr(default_image, "SLIM_IMAGE", unique)
        build_default_image(client, progress=said.append, variant="slim")  # the other one needs a base with Python
        assert find_image(client, unique) is not None
        assert "build-base: packing" in said
        assert any("debootstrap instead" in line for line in said)

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("echo no mirror >&2; exit 1", r"(?s)Making the base failed.*CODEACT_DEBIAN_MIRROR.*no mirror"),
            ("head -c 300000 /dev/zero; echo broke off >&2; exit 1", r"(?s)Making the base failed.*broke off"),
            ("echo waiting >&2; sleep 300", r"(?s)cut off after 1 s of silence.*waiting"),
            ("head -c 300000 /dev/zero; sleep 300", r"cut off after 1 s of silence"),
        ],
    )
    def test_a_script_that_fails_leaves_neither_image_nor_process(
        self, client, recipe, unique, monkeypatch, script, words
    ):
        monkeypatch.setattr(default_image, "_SCRIPT_STALL_S", 1.0)
        (recipe / "build-base.sh").write_text(f"echo $$ > {recipe}/pid\n{script}\n")
        with pytest.raises(SandboxStartError, match=words):
            default_image._bootstrap(client, unique, "default", Reporter(silent))
        assert find_image(client, unique) is None
        assert group_ends(int((recipe / "pid").read_text()))

    @pytest.mark.parametrize(
        ("platform", "uid", "debootstrap", "words"),
        [
            ("darwin", 501, False, "docker save"),
            ("linux", 1000, True, "sudo"),
            ("linux", 0, False, "apt-get install debootstrap"),
        ],
    )
    def test_reasons_why_a_base_can_not_be_made(self, platform, uid, debootstrap, words):
        assert words in (why_no_bootstrap(platform, uid, debootstrap=debootstrap) or "")

    def test_root_on_linux_can_make_a_base(self):
        assert why_no_bootstrap("linux", 0, debootstrap=True) is None

    @pytest.mark.parametrize("script", ["build-base.sh", "install.sh"])
    def test_the_scripts_are_shell(self, script):
        assert subprocess.run(["sh", "-n", str(default_image.SOURCE / script)], check=False).returncode == 0
