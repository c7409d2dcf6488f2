#!/bin/sh
# What a machine needs before the project can run on it. Installs only on Debian and as root, saying so first; elsewhere it says
# what to install. Every step is skipped where it has been done.
#
#     docker/setup.sh venv FOLDER PYTHON     a virtual environment
#     docker/setup.sh engine PYTHON          a Docker engine that answers
#     docker/setup.sh bubblewrap             the other sandbox, for its tests
#     docker/setup.sh debootstrap            what makes the base image where no registry answers
#     docker/setup.sh sandbox BIN            Docker and its image where an engine answers, else bubblewrap, else either
set -eu

log=/var/log/codeact-dockerd.log

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }
may_install() { [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null; }

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
    say "making a virtual environment in $folder"
    "$python" -m venv --clear "$folder"
}

answers() { "$1" -c 'from autogen_codeact.sandbox.backends.docker.engine import connect; connect().close()' 2>/dev/null; }

engine() {
    python=$1
    if answers "$python"; then
        say "a Docker engine answers"
        return
    fi
    if ! may_install; then
        # Its own sentence says what to do on this kind of machine.
        "$python" -c 'from autogen_codeact.sandbox.backends.docker.engine import connect; connect()' 2>&1 | tail -n 1 >&2
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
    say "starting dockerd (its log: $log)"
    rm -f /var/run/docker.pid
    setsid nohup dockerd >"$log" 2>&1 </dev/null &
}

bubblewrap_() {
    command -v bwrap >/dev/null && return
    may_install && install bubblewrap
    return 0
}

debootstrap_() {
    command -v debootstrap >/dev/null && [ -r /usr/share/keyrings/debian-archive-keyring.gpg ] && return
    may_install && install debootstrap debian-archive-keyring
    return 0
}

bubblewrap_works() {
    "$1/python" -c 'from autogen_codeact.sandbox.backends.bubblewrap.launcher import check_bubblewrap as check; check()' 2>/dev/null
}

sandbox() {
    bin=$1
    if ! answers "$bin/python"; then
        if bubblewrap_works "$bin"; then
            say "no Docker engine answers; bubblewrap does"
            return
        fi
        if ! may_install; then
            "$bin/python" -c 'from autogen_codeact.executors.auto import find_sandbox; find_sandbox()' 2>&1 | tail -n 1 >&2
            fail "no sandbox can be had; this script installs one only on Debian and as root"
        fi
        # In a process of its own, so that its failure does not end this one.
        if ! (engine "$bin/python"); then
            say "Docker can't be started here, so bubblewrap is tried"
            install bubblewrap
            bubblewrap_works "$bin" || {
                "$bin/python" -c 'from autogen_codeact.executors.auto import find_sandbox; find_sandbox()' 2>&1 | tail -n 1 >&2
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
    venv) venv "$2" "$3" ;;
    engine) engine "$2" ;;
    bubblewrap) bubblewrap_ ;;
    debootstrap) debootstrap_ ;;
    sandbox) sandbox "$2" ;;
    *) fail "usage: setup.sh venv FOLDER PYTHON | engine PYTHON | bubblewrap | debootstrap | sandbox BIN" ;;
esac
case $1 in venv | engine) say "$1: $(($(date +%s) - started)) s" ;; esac
