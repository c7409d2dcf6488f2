"""Paths and variables that every sandbox has, whatever its backend."""

WORKSPACE = "/workspace"
DATA = "/data"
SKILLS = "/skills"
PACKAGES = "/packages"
HOME = "/tmp/home"  # noqa: S108 - a path in the sandbox
# Variables of every process in the sandbox, besides those of its image or backend.
ENVIRONMENT = {
    "HOME": HOME,
    # Programs ask for a name, and the user that owns a mounted folder has none in the image.
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "LANG": "C.UTF-8",
    # Python uses a cached module if the size and the second of its source are the same: an edit after a run would not count.
    "PYTHONDONTWRITEBYTECODE": "1",
    # The sandbox is discarded, so Debian's protection of its own Python is of no use here.
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
# What pip shows in a sandbox without a network.
NO_INDEX = (
    "pip can't install here: code has to use what is installed, unless whoever runs this sandbox sets allow_pip=True "
    "(on the command line: --allow-pip or --package NAME)"
)
