"""What a shell script of a session leaves behind: its directory and its exported variables, saved when its shell exits.

The script runs as a file of its own, so `$0`, `$#`, `BASH_SOURCE` and its traps are as anywhere else. Bash reads a start file for
that (`BASH_ENV`); other shells have none for scripts, so they source the script under its own name.
"""

import os
import re
import shlex

# Above the descriptors that scripts use themselves, such as 9 for `flock`.
STATE_FD = 100
_SAVE = (
    """\
__codeact_save() {
    set -- $?
    [ "${BASH_SUBSHELL:-0}" != 0 ] || { pwd -P; printf '\\000'; command -p env -0; } 2>/dev/null >/proc/self/fd/%d
    return $1
}
command trap __codeact_save EXIT
"""
    % STATE_FD
)
# Saves first, so that an exit trap of the script that ends with `exit` loses nothing.
_KEEP_TRAP = """\
__codeact_trap() {
    command trap "$@" || return
    case ${1-} in --) shift ;; -?*) return ;; esac
    [ $# != 0 ] || return 0
    case $1 in '' | *[!0-9]*) [ $# != 1 ] || set -- - "$1" ;; *) set -- - "$@" ;; esac
    local action condition
    case $1 in - | '') action=__codeact_save ;; *) action="__codeact_save; $1" ;; esac
    shift
    for condition do
        case $condition in 0 | EXIT | exit) command trap "$action" EXIT ;; esac
    done
}
"""
_SETS_EXIT_TRAP = re.compile(rb"\btrap\b.*\b(?:EXIT|exit|0)\b")


def command_for(command, code):
    """Return the command that runs a script and saves its state in `STATE_FD`; it ends with the script's file.

    Sets variables of this process, which becomes the shell.
    """
    start = _SAVE
    # A RETURN trap that a function sets would run at that function's own end, so such a script keeps the plain `trap`.
    keeps_trap = _SETS_EXIT_TRAP.search(code) and b"RETURN" not in code
    if os.path.basename(command[0]) != "bash":
        start += _KEEP_TRAP + "alias trap=__codeact_trap\n" if keeps_trap else ""
        return [*command[:-1], "-c", start + '. "$0"', command[-1]]
    start += _KEEP_TRAP + 'trap() { __codeact_trap "$@"; }\n' if keeps_trap else ""
    own, fd = os.environ.get("BASH_ENV"), os.memfd_create("start", 0)
    start += "exec %d<&-\n" % fd
    start += 'export BASH_ENV=%s\n. "$BASH_ENV"\n' % shlex.quote(own) if own else "unset BASH_ENV\n"
    os.write(fd, start.encode("utf-8", "surrogateescape"))
    os.environ["BASH_ENV"] = "/proc/self/fd/%d" % fd
    return command
