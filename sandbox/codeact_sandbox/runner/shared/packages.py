"""The folder of installed packages, and how pip is used in the sandbox."""

import os
import re
import sys

FOLDER = "/packages"
SITE = os.path.join(FOLDER, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
PIP_LINE = re.compile(rb"^([ \t]*)[!%](pip3?[ \t][^\n]*)$", re.MULTILINE)
# Pip's settings that name other sources of packages, or how to reach them.
OTHER_SOURCES = (
    "PIP_CERT", "PIP_CLIENT_CERT", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_PROXY", "PIP_TRUSTED_HOST",
)  # fmt: skip
PIP_SETTINGS = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_RETRIES": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
}


def versions(names, path):
    """Return the versions of packages that are installed in folders; importlib.metadata takes longer to import than this."""
    found = {}
    for folder in path:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            stem, kind = os.path.splitext(entry)
            name, _, version = stem.partition("-")
            if kind in (".dist-info", ".egg-info"):
                name = name.lower().replace("_", "-").replace(".", "-")
                found.setdefault(name, version.partition("-")[0].partition("+")[0])
    return {name: found[name] for name in names if name in found}


def commands(names):
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [name for name in names if any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)]


def refuse(reason):
    """Let pip end at once with a reason, unless an index is configured; there is no network."""
    os.environ.setdefault("PIP_RETRIES", "0")
    # The path of a folder that does not exist: pip shows it as it is, also with --quiet, and opens no connection.
    os.environ.setdefault("PIP_INDEX_URL", "file:///" + reason)


def prepare_folder(config):
    """Set the variables so that all processes use this folder, if it exists, and no other folder of user packages."""
    found = FOLDER if os.path.isdir(FOLDER) and os.access(FOLDER, os.W_OK) else None
    config["packages"] = found
    config["user_site"] = not os.environ.get("PYTHONNOUSERSITE")
    if found:
        os.environ["PYTHONUSERBASE"] = found
    else:
        os.environ["PYTHONNOUSERSITE"] = "1"


def use_index(url, folder):
    """Set the variables by which pip uses the host's package index, and programs that it installs are found."""
    for name in OTHER_SOURCES:
        os.environ.pop(name, None)
    os.environ.update(PIP_SETTINGS, PIP_INDEX_URL=url)
    if folder:
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + os.path.join(folder, "bin")
        if _in_closed_environment():
            os.environ["PIP_PREFIX"] = folder
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), SITE)))


def _in_closed_environment():
    """Return whether this is the Python of a virtual environment, in which pip installs nothing for a user."""
    try:
        with open(os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "pyvenv.cfg")) as file:
            text = file.read().replace(" ", "").lower()
    except (OSError, ValueError):
        return False
    return "include-system-site-packages=true" not in text


def translated(code):
    """Translate the lines of a script that are commands of pip in a notebook; unchanged if it has none, or is Python."""
    if b"!pip" not in code and b"%pip" not in code:
        return code
    try:
        compile(code, "<script>", "exec", dont_inherit=True)
        return code
    except (SyntaxError, ValueError):
        return PIP_LINE.sub(_call, code)


def _call(match):
    return b"%s__import__('subprocess').call(%a, shell=True)" % (match[1], match[2].decode("utf-8", "replace"))
