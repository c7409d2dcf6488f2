"""Imports what most of our programs import, then forks a process for each program that it is asked to run.

`tests/processes.py` starts it and says what it is for. Run as `python -W error fork_server.py FD PID`: FD is the socket that
requests come to, and PID the process with which it ends. It ends when its modules are imported, and leaves the server running.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
import types
import warnings

MODULES = (
    "anyio._backends._asyncio",
    "autogen_agentchat.conditions",
    "autogen_agentchat.teams",
    "autogen_agentchat.ui",
    "autogen_codeact.cli.batch",
    "autogen_codeact.cli.chat",
    "autogen_codeact.cli.chat_input",
    "autogen_codeact.cli.demo",
    "autogen_codeact.cli.doctor",
    "autogen_codeact.cli.kept_runs",
    "codeact_sandbox.backends.docker.default_image",
    "autogen_codeact.cli.model_servers",
    "autogen_codeact.cli.main",
    "autogen_codeact.cli.mcp",
    "autogen_codeact.cli.models",
    "autogen_codeact.cli.run",
    "autogen_codeact.cli.exec_file",
    "autogen_codeact.cli.pages",
    "autogen_codeact.executors",
    "codeact_sandbox.integrations.mcp_server",
    "codeact_sandbox.backends.docker.backend",
    "autogen_codeact.teams",
    "autogen_codeact.viewer.app",
    "autogen_ext.models.openai",
    "autogen_ext.models.replay",
    "docker",
    "encodings.utf_8_sig",
    "mcp.server.fastmcp",
    "openai",
    "openai.resources.beta.beta",
    "typer._adapters",
    "typer.rich_utils",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
)
REQUEST_BYTES = 1 << 18
REQUEST_S = 10
ERROR = ("error", None, Warning, None, 0)
"""What `-W error` puts before the interpreter's own filters of warnings."""


def serve(requests, life):
    """Fork a process for each request, and report its number and then its exit status.

    Args:
        requests: The socket that requests come to, each on a connection of its own.
        life: Descriptor of the process with which this one ends.

    Returns:
        The request to carry out, in the new process only.
    """
    running = {}
    while True:
        for ready in select.select([requests, life, *running], [], [])[0]:
            if ready is requests:
                request, received = receive(requests)
                if not received:
                    continue
                *streams, status = received
                pid = os.fork()
                if pid == 0:
                    requests.detach()
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                    return json.loads(request)
                for stream in streams:
                    os.close(stream)
                report(status, pid)
                running[os.pidfd_open(pid)] = (pid, status)
            elif ready == life:
                os._exit(0)
            else:
                pid, status = running.pop(ready)
                _, ended = os.waitpid(pid, 0)
                os.close(ready)
                report(status, os.waitstatus_to_exitcode(ended))
                os.close(status)


def receive(requests):
    """Take the next request of this user: its text, and its standard streams and where its status is reported."""
    connection, _ = requests.accept()
    with connection:
        connection.settimeout(REQUEST_S)
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            return b"", []
        with contextlib.suppress(OSError):
            message, received, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
            return message, received
    return b"", []


def report(status, number):
    """Write a number to the one who has requested a process."""
    with contextlib.suppress(OSError):  # nobody waits for it any more
        os.write(status, str(number).encode())


def become(request):
    """Set what a new interpreter takes from its surroundings.

    Args:
        request: `arguments`, the command line from the program on; `environment`; `folder`, the one to run in;
            `warnings`, the interpreter's options `-W`.

    Returns:
        The program's code and the module to run it in.
    """
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    set_warnings(request["warnings"])
    sys.stdout.reconfigure(line_buffering=os.isatty(1) and not sys.stdout.write_through)
    program, *arguments = request["arguments"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if program == "-c":
        source, *arguments = arguments
        name, folder = "<string>", ""
    else:
        with open(program, encoding="utf-8") as file:
            source = file.read()
        name, folder = program, os.path.dirname(os.path.realpath(program))
        main.__file__ = program
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)
    return compile(source, name, "exec", dont_inherit=True), main


def set_warnings(options):
    """Set the filters that these options `-W` make, below those that imported modules have added."""
    sys.warnoptions[:] = options
    place = warnings.filters.index(ERROR)
    of_modules, own = warnings.filters[:place], warnings.filters[place + 1 :]
    warnings.filters[:] = own
    warnings._processoptions(options)
    warnings.filters[:0] = of_modules
    warnings._filters_mutated()


def fill_caches():
    """Prepare what each sandbox of a new process would prepare again: the runner's modules, and which Python it can run."""
    runner_modules = sys.modules["codeact_sandbox.host.runner_modules"]
    runner_modules.compiled_frame()
    runner_modules.sources_frame()
    interpreter = sys.modules["codeact_sandbox.backends.bubblewrap.interpreter"]
    with contextlib.suppress(sys.modules["codeact_sandbox"].SandboxUnavailable):
        interpreter.find_interpreter(None, interpreter.host_user())


def load():
    """Import the modules, and check that a fork copies all that they have made."""
    del sys.path[0]
    for name in MODULES:
        importlib.import_module(name)
    # Its first client, and the first look at what a client offers, import a hundred more, which depend on its version.
    assert sys.modules["openai"].AsyncOpenAI(api_key="none").chat.completions
    fill_caches()
    assert len(os.listdir("/proc/self/task")) == 1, "a module has started a thread, which a fork does not copy"
    assert tempfile.tempdir is None, "a module has read TMPDIR"
    gc.collect()
    gc.freeze()  # the garbage collector of each process would write to this memory, and so copy it


def leave_running():
    """End this process, and go on in a child process that no process is the parent of; its streams lead nowhere."""
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.close(nowhere)


def end(status, variables):
    """End this process as the interpreter does, but leave the imported modules' memory to the kernel.

    Freeing the modules one by one would copy all of the server's memory, for 80 ms of processor time. What the program itself has
    made is freed, so that an object which complains when it is freed does so. Returns if the output can't be written: the
    interpreter has messages and an exit status for that.

    Args:
        status: The exit status.
        variables: Of the program's main module.
    """
    try:
        threading._shutdown()  # waits for the threads
    except BaseException:  # noqa: BLE001 - as the interpreter, which goes on
        traceback.print_exc()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        variables.clear()
        gc.collect()
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return
    os._exit(status & 0xFF)


if __name__ == "__main__":
    listener, owner = socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2]))
    load()
    # A Ctrl-C is for the programs. One that comes early waits until its program can take it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    leave_running()
    code, main_module = become(serve(listener, owner))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    status = 0
    try:
        # At the top level, so that the interpreter itself reports errors and interruptions.
        exec(code, main_module.__dict__)
    except SystemExit as stopped:
        if not isinstance(stopped.code, int | None):
            raise
        status = stopped.code or 0
    end(status, main_module.__dict__)
    sys.exit(status)
