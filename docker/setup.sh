#!/bin/sh
# Prepare a machine for the project. Installs packages only on Debian and as root, and says so first; on other machines it says
# what to install. Steps that are done already are skipped.
#
#     docker/setup.sh notice demo|engine     print what the other steps may change on this machine
#     docker/setup.sh venv FOLDER PYTHON     a virtual environment
#     docker/setup.sh engine PYTHON          a Docker engine that answers
#     docker/setup.sh bubblewrap             bubblewrap, for its tests
#     docker/setup.sh browser                Chromium, for the tests of the viewer
#     docker/setup.sh debootstrap            the tool that makes the base image if no registry answers
#     docker/setup.sh sandbox BIN            Docker and its image if an engine answers, else bubblewrap, else install one of them
set -eu

log=/var/log/codeact-dockerd.log

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; }

notice() {
    may_install || return 0
    case $1 in
        demo) when="if neither a Docker engine nor bubblewrap works" for_tests="" ;;
        *) when="if no Docker engine answers" for_tests=", and for tests chromium (0.4 GB)" ;;
    esac
    say "you are root on Debian, so this may change the machine:"
    say "  - packages that are missing are installed with apt-get: python3-venv, docker.io, iptables,"
    say "    ca-certificates, debootstrap, debian-archive-keyring, bubblewrap, esbuild$for_tests"
    say "  - $when, dockerd is started and keeps running afterwards"
    say "  - if Docker is used and its image is missing, the image is built (about 0.9 GB)"
    say "Python packages are installed in .venv only."
}

install() {
    say "installing $* with apt-get (this machine runs Debian and you are root)"
    apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        fail "apt-get could not install $*: see its message above"
}

venv() {
    folder=$1 python=$2
    command -v "$python" >/dev/null || { may_install && install python3 python3-venv; } || true
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "Python 3.11 or later is needed: install it, or name one with PYTHON=/path/to/python3 make …"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || { may_install && install python3-venv; } ||
        fail "Python's venv module is missing: install it (on Debian and Ubuntu: apt-get install python3-venv)"
    say "creating a virtual environment in $folder"
    "$python" -m venv --clear "$folder"
}

answers() { "$1" -c 'from codeact_sandbox.backends.docker.engine import connect; connect().close()' 2>/dev/null; }

engine() {
    python=$1
    if answers "$python"; then
        say "a Docker engine answers"
        return
    fi
    if ! may_install; then
        # The error message says what to do on this kind of machine.
        "$python" -c 'from codeact_sandbox.backends.docker.engine import connect; connect()' 2>&1 | tail -n 1 >&2
        fail "no Docker engine answers; this script installs and starts one only on Debian and as root"
    fi
    command -v dockerd >/dev/null || install docker.io iptables ca-certificates
    answers "$python" || start
    for _ in $(seq 60); do
        answers "$python" && { say "the Docker engine answers"; return; }
        sleep 1
    done
    fail "the Docker engine did not answer within a minute: see $log"
}

start() {
    say "starting dockerd, which keeps running afterwards (log: $log)"
    rm -f /var/run/docker.pid
    setsid nohup dockerd >"$log" 2>&1 </dev/null &
}

bubblewrap_() {
    command -v bwrap >/dev/null && return
    may_install && install bubblewrap esbuild
    return 0
}

browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null && return
    may_install && install chromium fonts-dejavu-core
    return 0
}

debootstrap_() {
    command -v debootstrap >/dev/null && [ -r /usr/share/keyrings/debian-archive-keyring.gpg ] && return
    may_install && install debootstrap debian-archive-keyring
    return 0
}

bubblewrap_works() {
    "$1/python" -c 'from codeact_sandbox.backends.bubblewrap.launcher import check_bubblewrap as check; check()' 2>/dev/null
}

sandbox() {
    bin=$1
    if ! answers "$bin/python"; then
        if bubblewrap_works "$bin"; then
            say "no Docker engine answers, so bubblewrap is used"
            return
        fi
        if ! may_install; then
            "$bin/python" -c 'from codeact_sandbox.backends.selection import choose_backend; choose_backend(())' 2>&1 | tail -n 1 >&2
            fail "there is no sandbox on this machine; this script installs one only on Debian and as root"
        fi
        # In a subshell, because a failure exits.
        if ! (engine "$bin/python"); then
            say "Docker can't be started, so bubblewrap is used"
            install bubblewrap
            bubblewrap_works "$bin" || {
                "$bin/python" -c 'from codeact_sandbox.backends.selection import choose_backend; choose_backend(())' 2>&1 | tail -n 1 >&2
                fail "neither Docker nor bubblewrap works on this machine"
            }
            return
        fi
    fi
    debootstrap_
    "$bin/codeact" image build
}

started=$(date +%s)
case ${1:-} in
    notice) notice "${2:-}" ;;
    venv) venv "$2" "$3" ;;
    engine) engine "$2" ;;
    bubblewrap) bubblewrap_ ;;
    browser) browser ;;
    debootstrap) debootstrap_ ;;
    sandbox) sandbox "$2" ;;
    *) fail "usage: setup.sh notice demo|engine | venv FOLDER PYTHON | engine PYTHON | bubblewrap | browser | debootstrap | sandbox BIN" ;;
esac
case $1 in venv | engine) say "$1: $(($(date +%s) - started)) s" ;; esac
