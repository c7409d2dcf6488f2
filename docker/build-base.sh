#!/bin/sh
# Makes a Debian 13 root file system with the libraries of packages.txt and writes it, as a tar, to standard output:
#
#     sudo docker/build-base.sh | docker import - autogen-codeact/base
#
# For machines where no registry answers. Needs root, debootstrap and a Debian mirror: the host's own when the host runs
# Debian, else debootstrap's default. CODEACT_DEBIAN_MIRROR overrides both.
set -eu

suite=trixie
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
here=$(cd "$(dirname "$0")" && pwd)

say() { echo "build-base: $*" >&2; }
fail() { say "$*"; exit 1; }

# The first Debian archive that the host's apt uses; one that has this very suite goes before others.
host_mirror() {
    command -v apt-get >/dev/null || return 0
    apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Identifier: Packages' 2>/dev/null |
        awk -v suite="$suite" '
            $1 != "Debian" { next }
            $2 == suite && !exact { exact = $3 }
            $2 !~ /-/ && !other { other = $3 }
            END { print exact ? exact : other }'
}

# Neither debootstrap's wget nor the new system's apt reads the host's apt configuration.
use_host_proxy() {
    command -v apt-config >/dev/null || return 0
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "${proxy:-}" ] || [ "$proxy" = DIRECT ] || export http_proxy="${http_proxy:-$proxy}"
}

[ "$(id -u)" = 0 ] || fail "debootstrap needs root: run it with sudo"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
# Without the keyring debootstrap would go on without checking signatures.
[ -r "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring"

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$root"
mirror=${CODEACT_DEBIAN_MIRROR:-$(host_mirror)}
use_host_proxy

# An older debootstrap has no script of this suite's name; Debian's suites share one, which it has as `sid`.
script=
for folder in "${DEBOOTSTRAP_DIR:-}" /usr/share/debootstrap /usr/local/share/debootstrap; do
    [ ! -e "$folder/scripts/sid" ] || [ -e "$folder/scripts/$suite" ] || script=$folder/scripts/sid
done

say "debootstrap of $suite from ${mirror:-its default mirror}"
debootstrap --variant=minbase --keyring="$keyring" --force-check-gpg --include=ca-certificates \
    "$suite" "$root" "$mirror" "$script" >&2 ||
    fail "debootstrap failed, its log is above. Is the mirror reachable? CODEACT_DEBIAN_MIRROR names another. If the signature" \
        "is by an unknown key, the host's debian-archive-keyring is older than $suite: install a newer one"

say "installing the packages"
mkdir "$root/build"
cp "$here/install.sh" "$here"/*.txt "$root/build/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# A clean environment: PYTHONDONTWRITEBYTECODE and the like of the host's shell must not shape the image.
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ${http_proxy:+"http_proxy=$http_proxy"} \
    chroot "$root" sh /build/install.sh apt-only >&2 ||
    fail "installing the packages failed, the log is above"
rm -rf "$root/build" "$root/etc/resolv.conf" "$root/debootstrap"

say "packing"
tar --numeric-owner --one-file-system -C "$root" -c .
