"""Each peer in an environment of its own, in its newest release; and the image that all of them run."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from autogen_codeact.executors import DEFAULT_IMAGE

ROOT = Path(__file__).parents[2]
WHERE = ROOT / ".bench"
IMAGE = "autogen-codeact/bench"
INSTALL_TIMEOUT_S = 600
# Our image with what the peers need beside Python. A registry is not needed: wheels are brought along.
RECIPE = f"""FROM {DEFAULT_IMAGE}
COPY wheels /wheels
RUN python3 -m pip install --quiet --no-index --find-links /wheels --break-system-packages --ignore-installed \\
    jupyter_kernel_gateway ipykernel jupyter_client && rm -rf /wheels && ln -sf python3 /usr/bin/python \\
    && mkdir -p /workspace /sandbox && python3 -m venv --without-pip --system-site-packages /sandbox/.sandbox-venv
LABEL org.autogen-codeact.kind="bench-image"
ENV TOKEN=UNSET
EXPOSE 8888
CMD python3 -m jupyter kernelgateway --KernelGatewayApp.ip=0.0.0.0 --KernelGatewayApp.port=8888 \\
    --KernelGatewayApp.auth_token="${{TOKEN}}" --JupyterApp.answer_yes=true --JupyterWebsocketPersonality.list_kernels=true
"""
IN_IMAGE = ("jupyter_kernel_gateway", "ipykernel", "jupyter_client")


@dataclass(frozen=True)
class Environment:
    """Where arms run.

    Args:
        modules: Modules of arms.
        requirements: What pip installs; nothing for this program's own environment.
        shown: Package whose version is told.
    """

    modules: tuple
    requirements: tuple = ()
    shown: str = ""


ENVIRONMENTS = {
    "own": Environment(("floors", "ours")),
    "autogen": Environment(
        ("peer_autogen",),
        ("autogen-agentchat", "autogen-ext[docker,docker-jupyter-executor]"),
        "autogen-ext",
    ),
    "smolagents": Environment(("peer_smolagents",), ("smolagents[docker]",), "smolagents"),
    "llm-sandbox": Environment(("peer_llm_sandbox",), ("llm-sandbox[docker]",), "llm-sandbox"),
}
PLOTS = ("matplotlib",)


class Missing(Exception):
    """Something can't be had here."""


def python_of(name, requirements):
    """The interpreter of an environment, which is made where it is not there yet.

    Raises:
        Missing: Its packages can't be installed.
    """
    if not requirements:
        return Path(sys.executable)
    folder = WHERE / name
    python, done = folder / "bin/python", folder / "requirements"
    if done.exists() and done.read_text() == "\n".join(requirements):
        return python
    print(f"making the environment of {name}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _run(f"{name} could not be installed", [python, "-m", "pip", "install", "--quiet", *requirements])
    done.write_text("\n".join(requirements))
    return python


def version_of(python, package):
    """The version of a package in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return _run("the version can't be told", [python, "-c", code]).strip()


def peers_image():
    """The image of the peers, built where it is not there yet.

    Raises:
        Missing: It can't be built.
    """
    base = json.loads(_run("no image", ["docker", "image", "inspect", DEFAULT_IMAGE]))[0]["Id"]
    tag = f"{IMAGE}:{hashlib.sha256((RECIPE + base).encode()).hexdigest()[:12]}"
    if subprocess.run(["docker", "image", "inspect", tag], capture_output=True, check=False).returncode == 0:
        return tag
    print("building the peers' image", file=sys.stderr)
    code = "import platform; print(platform.python_version())"
    version = _run(
        "no Python", ["docker", "run", "--rm", "--network=none", DEFAULT_IMAGE, "python3", "-c", code]
    ).strip()
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder, "wheels")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        _run("no wheels", [*download, "--python-version", version, "-d", wheels, *IN_IMAGE])
        Path(folder, "Dockerfile").write_text(RECIPE)
        _run("it could not be built", ["docker", "build", "--quiet", "--network=none", "-t", tag, folder])
    return tag


def _run(complaint, command):
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{complaint}: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no word of why"]
        raise Missing(f"{complaint}: {lines[-1]}")
    return done.stdout
