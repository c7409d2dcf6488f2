"""Creates an environment for each library, in its newest release, and the image that all of them run."""

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

from codeact_sandbox.types.options import DEFAULT_IMAGE

ROOT = Path(__file__).parents[2]
WHERE = ROOT / ".bench"
IMAGE = "autogen-codeact/bench"
INSTALL_TIMEOUT_S = 600
# Our image with what the libraries need in addition. The build needs no registry: it copies wheels.
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
    """A Python environment in which variants run.

    Args:
        modules: Modules of variants.
        requirements: Packages for pip to install; none for this program's own environment.
        shown: Package whose version is on the page.
    """

    modules: tuple
    requirements: tuple = ()
    shown: str = ""


ENVIRONMENTS = {
    "own": Environment(("floors", "ours")),
    "autogen": Environment(
        ("library_autogen",),
        ("autogen-agentchat", "autogen-ext[docker,docker-jupyter-executor]"),
        "autogen-ext",
    ),
    "smolagents": Environment(("library_smolagents",), ("smolagents[docker]",), "smolagents"),
    "llm-sandbox": Environment(("library_llm_sandbox",), ("llm-sandbox[docker]",), "llm-sandbox"),
}
ON_BOARD = {
    "monty": Environment(("library_monty",), ("pydantic-monty",), "pydantic-monty"),
    "microsandbox": Environment(("library_microsandbox",), ("microsandbox",), "microsandbox"),
}
"""Only for board.py."""


class Missing(Exception):
    """Something is not available on this machine."""


def python_of(name, requirements):
    """Return the interpreter of an environment, which is created if it is missing.

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
    """Return the version of a package in an environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return _run("the version is unknown", [python, "-c", code]).strip()


def libraries_image():
    """Return the image of the libraries, which is built if it is missing.

    Raises:
        Missing: It can't be built.
    """
    base = json.loads(_run("no image", ["docker", "image", "inspect", DEFAULT_IMAGE]))[0]["Id"]
    tag = f"{IMAGE}:{hashlib.sha256((RECIPE + base).encode()).hexdigest()[:12]}"
    if subprocess.run(["docker", "image", "inspect", tag], capture_output=True, check=False).returncode == 0:
        return tag
    print("building the libraries' image", file=sys.stderr)
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


def _run(problem, command):
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{problem}: {type(error).__name__}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise Missing(f"{problem}: {lines[-1]}")
    return done.stdout
