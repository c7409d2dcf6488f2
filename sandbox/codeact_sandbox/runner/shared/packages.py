"""The folder of installed packages; in process mode only a block that is one `pip install` command may change it."""

import importlib.machinery
import itertools
import os
import re
import shlex
import sys

FOLDER = "/packages"
SITE = os.path.join(FOLDER, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
SHELLS = (["sh", "{file}"], ["bash", "{file}"])
PYTHONS = ("python", "python3")
PIPS = ("pip", "pip3")
# What a shell would expand.
EXPANSIONS = frozenset("$`\\*?{}")
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*\"""")
COMMENT = re.compile(r"\s#")
PIP_LINE = re.compile(rb"^([ \t]*)[!%](pip3?[ \t][^\n]*)$", re.MULTILINE)
PUNCTUATION = frozenset("();<>|&")
# In bytes. A longer block is not parsed: one long word would keep PID 1 busy for seconds.
MAX_CODE = 16 * 1024
# An earlier block may have written modules to the current directory.
RUN_PIP = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module('pip', run_name='__main__', alter_sys=True)"
)
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
QUIET_OPTIONS = ("-q", "-qq", "-U", "-qU", "-Uq", "--quiet", "--upgrade", "--user")
_refusal = None
HOW_TO = (
    "In this sandbox only a block that contains nothing but one `pip install ...` command can install packages; "
    "later blocks can import them."
)


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
    """Return the commands that are found by their names."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [name for name in names if any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders)]


def refuse(reason):
    """Let pip end at once with a reason, unless it is told of an index; there is no network."""
    global _refusal  # noqa: PLW0603
    os.environ.setdefault("PIP_RETRIES", "0")
    # The path of a folder that does not exist: pip shows it as it is, also with --quiet, and opens no connection.
    index = "file:///" + reason
    if os.environ.setdefault("PIP_INDEX_URL", index) == index:
        _refusal = reason


def refusal_of(command):
    """Return why a command line can't install packages; None if it is another one, or pip itself has to say."""
    words = command.split()
    if words[1:3] == ["-m", "pip"]:
        words = words[2:]
    if words[:1] in (["pip"], ["pip3"]) and words[1:2] == ["install"]:
        named = [word for word in words[2:] if word not in QUIET_OPTIONS]
        if not any(word.startswith("-") or "/" in word or os.path.exists(word) for word in named):
            return _refusal
    return None


def prepare_folder(config):
    """Set the variables so that all processes use this folder, if it exists, and no other folder of user packages."""
    found = FOLDER if os.path.isdir(FOLDER) and os.access(FOLDER, os.W_OK) else None
    in_session = config["mode"] == "session"
    # Not for a user that may write to the root folder: a domain without a rule for it would forbid that.
    protected = found and not in_session and config["landlock"] and not os.access("/", os.W_OK)
    config.update(
        packages=found, protected_folder=found if protected else None, trusted=bool(found and (in_session or protected))
    )
    config["user_site"] = not os.environ.get("PYTHONNOUSERSITE")
    index = (config.get("proxy") or {}).get("index")
    config["site"] = SITE if found and index and config["user_site"] else None
    if found:
        os.environ["PYTHONUSERBASE"] = found
    if not config["trusted"]:
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


def prepare(request, code, config):
    """If a shell block is one `pip install` command, or a Python block one `!pip install`, allow it to change the folder."""
    is_python = not request["command"]
    possible = config["packages"] and (is_python or request["command"] in SHELLS)
    words = _pip_command(code, is_python) if possible and len(code) <= MAX_CODE and b"pip" in code else None
    if words is not None:
        # Without a shell, so that nothing interprets the checked command differently.
        request.update(installs=True, command=[sys.executable, "-c", RUN_PIP, *words])
        request["unset"] = ["PYTHONPATH", "PYTHONNOUSERSITE"]


def variables(home):
    """Return the environment of a block that installs packages."""
    # Other blocks can't reach what pip reads and unpacks, and it is removed after the block, even if that is killed.
    folder = home or FOLDER
    return {"HOME": folder, "TMPDIR": folder, "PIP_NO_CACHE_DIR": "1"}


def own_variables(home, code, config):
    """Return the variables with which a block that may run pip installs packages for itself only; they end with its home."""
    if not home or not config["protected_folder"] or not config["site"] or b"pip" not in code:
        return {}
    found = {"PYTHONUSERBASE": home, "PATH": os.pathsep.join((os.environ["PATH"], os.path.join(home, "bin")))}
    path = [os.environ.get("PYTHONPATH"), config["site"]]
    if "PIP_PREFIX" in os.environ:
        found["PIP_PREFIX"] = home
        path.append(home + config["site"][len(FOLDER) :])
    return dict(found, PYTHONPATH=os.pathsep.join(filter(None, path)))


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


class Finder:
    """Finds modules that the block itself has installed; the last of `sys.meta_path`, because the folder does not exist yet."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if path is not None or self.folder in sys.path or not os.path.isdir(self.folder):
            return None
        sys.path.append(self.folder)
        return importlib.machinery.PathFinder.find_spec(name, [self.folder], target)


def may_have_tried_pip(request, code, config):
    """Return whether a block of process mode may have failed because it is not allowed to install packages."""
    restricted = config["mode"] != "session" and config["packages"] and not request["installs"]
    restricted = restricted and not config["site"]
    return bool(restricted and b"pip" in code and b"install" in code)


def _pip_command(code, is_python):
    """Return the arguments of pip, or None if the code is not exactly one command that installs or removes packages."""
    try:
        lines = [line.strip() for line in code.decode("utf-8").split("\n")]
        lines = [line for line in lines if line and not line.startswith("#")]
        if is_python and lines:
            if lines[0][0] not in "!%":
                return None
            lines[0] = lines[0][1:].strip()
        if len(lines) != 1 or not EXPANSIONS.isdisjoint(COMMENT.split(QUOTED.sub("", lines[0]))[0]):
            return None
        lexer = shlex.shlex(lines[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))
    except ValueError:
        return None
    if any(word.startswith("~") or (word and PUNCTUATION.issuperset(word)) for word in words):
        return None
    if words[:1] and words[0] in PYTHONS and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    if len(words) > 2 and words[0] in PIPS and words[1] in ("install", "uninstall"):
        return words[1:]
    return None
