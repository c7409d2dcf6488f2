#!/bin/sh
# Installs the libraries into the Debian system that it runs in and makes it fit for a read-only root:
#
#     sh install.sh [apt-only]
#
# Where Python is Debian's own, packages.txt is installed with apt; on a base such as python:3.13-slim, which
# has a Python in /usr/local, requirements.txt with pip. On both, pip installs wheels.txt, except with `apt-only`, as build-base.sh
# calls it. Runs twice without harm: what is installed already is not fetched again.
set -eu

with_wheels=$([ "${1:-}" = apt-only ] || echo yes)
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
unset PYTHONDONTWRITEBYTECODE

libraries="numpy, pandas, scipy, sympy, matplotlib.pyplot, sklearn, seaborn, statsmodels.api, requests,
    httpx, bs4, lxml.etree, openpyxl, yaml, PIL.Image, networkx, tqdm, tabulate, IPython, jinja2, sqlalchemy"
[ -z "$with_wheels" ] || libraries="$libraries, pyarrow.parquet, plotly.express, altair"

# A sandbox without a network has an empty /etc/hosts. This library resolves `localhost` and the host's own name there.
name_service=libnss-myhostname

entries() { grep -v -e '^#' -e '^$' "$1"; }
installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

add_placeholders() {
    entries "$here/placeholders.txt" | while read -r name version; do
        installed "$name" && continue
        tree=$(mktemp -d)
        mkdir "$tree/DEBIAN"
        cat >"$tree/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: all
Multi-Arch: foreign
Maintainer: autogen-codeact
Description: empty stand-in, see placeholders.txt of the sandbox image
CONTROL
        chmod -R a+rX "$tree"
        dpkg-deb --build "$tree" "$tree.deb"
        dpkg -i "$tree.deb"
        rm -rf "$tree" "$tree.deb"
    done
}

# Apt must not replace a placeholder when it installs a package of the same source.
add_packages() {
    missing=$(for name; do installed "$name" || echo "$name"; done)
    [ -n "$missing" ] || return 0
    sources=
    if [ -n "${CODEACT_DEBIAN_MIRROR:-}" ]; then
        echo "deb $CODEACT_DEBIAN_MIRROR $(. /etc/os-release; echo "$VERSION_CODENAME") main" >/tmp/sources.list
        sources="-o Dir::Etc::SourceList=/tmp/sources.list -o Dir::Etc::SourceParts=/dev/null"
    fi
    # shellcheck disable=SC2086  # one argument for each option and package
    apt-get $sources update
    # shellcheck disable=SC2086
    apt-get $sources install -y --no-install-recommends -o APT::Get::Upgrade-By-Source-Package=false $missing
    rm -f /tmp/sources.list
}

# Wheels only: nothing in this image can compile.
add_wheels() {
    [ -n "$with_wheels" ] || return 0
    # shellcheck disable=SC2086  # one argument for each option
    python3 -m pip install --no-cache-dir --only-binary=:all: --root-user-action=ignore --disable-pip-version-check \
        --break-system-packages ${PIP_OPTIONS:-} "$@" || { echo "install.sh: pip could not install the wheels" >&2; exit 1; }
}

# At run time the root is read-only and HOME is empty: whatever Python would write on first import is written now.
prepare_python() {
    command -v python >/dev/null || ln -s python3 /usr/bin/python
    for folder in /usr/lib/python3/dist-packages /usr/local/lib/python3.*/*-packages; do
        [ -d "$folder" ] || continue
        # The libraries' own test suites are a fifth of the image. numpy.testing needs one module of numpy's.
        find "$folder" -depth -type d -name tests ! -path '*/numpy/_core/tests' -exec rm -rf {} +
        # What only compilers, JupyterLab and clients of Arrow Flight read.
        rm -rf "$folder"/fontTools/*/*.c "$folder"/pyarrow/include "$folder"/pyarrow/src "$folder"/pyarrow/*flight* \
            "$folder"/plotly/labextension "$folder"/plotly/package_data/widgetbundle.js
    done
    rm -rf /usr/local/share/jupyter /usr/share/nodejs/@types /usr/share/nodejs/undici-types
    # Files that are no valid Python (templates) are not worth a failure; a missing module shows in the import below.
    python3 -m compileall -q /usr/lib/python3 /usr/lib/python3.* /usr/local/lib/python3.* >/dev/null || true
    # The sandbox copies /etc/skel into each new HOME, the list of fonts with it.
    MPLBACKEND=Agg MPLCONFIGDIR=/etc/skel/.cache/matplotlib HOME=/nonexistent python3 -c "import $(echo $libraries)"
    chmod -R a+rX /etc/skel
    # DejaVu has no Chinese, Japanese and Korean characters.
    settings=$(python3 -c 'import matplotlib; print(matplotlib.matplotlib_fname())')
    sed -i '/^font.family *:/d' "$settings"
    echo "font.family: DejaVu Sans, Droid Sans Fallback" >>"$settings"
}

clean_up() {
    find / -xdev -type f -perm /6000 -exec chmod u-s,g-s {} +
    # What nobody reads in a sandbox; licences stay.
    find /usr/share/doc /usr/share/man /usr/share/info -mindepth 1 ! -type d ! -name copyright -delete 2>/dev/null || true
    find /usr/share/locale -mindepth 1 -maxdepth 1 -exec rm -rf {} +
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/apt /var/log/*.log
}

case $(command -v python3 || true) in
    /usr/local/*)
        add_packages $name_service nodejs esbuild fonts-droid-fallback
        add_wheels -r "$here/requirements.txt"
        ;;
    # shellcheck disable=SC2046  # one argument for each package
    *) add_placeholders; add_packages $name_service $(entries "$here/packages.txt") ;;
esac
add_wheels --no-deps -r "$here/wheels.txt"
# The label of the Dockerfile promises it.
grep -q '^hosts:.*myhostname' /etc/nsswitch.conf || { echo "install.sh: /etc/nsswitch.conf lacks myhostname" >&2; exit 1; }
prepare_python
clean_up
