"""The module `host_tools`, with which code calls host tools: its functions and exceptions."""

import _socket
import builtins
import functools
import importlib.machinery
import json
import linecache
import sys
import types

from . import tool_client

MODULE = "host_tools"
STUBS = "_stubs"
# Exceptions that would end a loop or the process unexpectedly, or that need other arguments.
_NOT_RAISED = {"StopIteration", "StopAsyncIteration", "SyntaxError", "IndentationError", "TabError"} | {
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "UnicodeTranslateError",
    "ExceptionGroup",
}

BROKEN = "def %s(*arguments, **named):\n    raise RuntimeError(%r)"

# Not the class of the module socket: programs replace that, for example to block the network.
Socket = _socket.socket

_made = {}
_public = {}
_added = {}


class _Running:
    client = None


class ToolError(Exception):
    """A host tool failed.

    Args:
        message: What the exception said on the host.
        type: Name of its class there.
    """

    def __init__(self, message="", type="ToolError"):  # noqa: A002 - what the attribute is called
        super().__init__(message)
        self.message = message
        self.type = type

    def __str__(self):
        return ": ".join(filter(None, (self.type, self.message)))


class ToolRefused(ToolError, PermissionError):
    """A call to a host tool was not allowed; the tool has not run."""

    def __str__(self):
        return self.message


for _error in (ToolError, ToolRefused):
    _error.__module__ = MODULE


def _plain(thing):
    """Convert numbers and arrays of numpy and similar packages."""
    tolist = getattr(thing, "tolist", None)
    if callable(tolist) and not isinstance(thing, type):
        return tolist()
    raise TypeError("%s can't be written as JSON" % type(thing).__name__)


# References of its own: user code may replace the functions of the module json.
_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
_encode_readably = json.JSONEncoder(ensure_ascii=False, default=_plain).encode
_decode = json.JSONDecoder().decode


def install(sources):
    """Make the module of [name, definition] of each thing, in order; return the errors, by tool.

    A definition is the source of a function, which calls `_call(name, arguments)`; or data from which functions and classes are
    made, after the source that makes them, which is named `_stubs`.
    """
    if not sources:
        return {}
    module = _module()
    problems = {}
    for name, source in sources:
        try:
            _define(module, name, source)
        except Exception as error:
            problems[name] = "%s: %s" % (type(error).__name__, error)
    _publish(module, sources)
    return problems


def add(sources):
    """Define host tools that were added after the start; return what `__main__` gets of those that are new."""
    fresh = [(name, source) for name, source in sources if _added.get(name) != source]
    if not fresh:
        return {}
    before = public()
    for name, problem in install(fresh).items():
        if "." in name:
            continue  # a function of a group; its name is missing there
        _define(_module(), name, BROKEN % (name, "the source of this host tool failed in the sandbox: " + problem))
    _publish(_module(), fresh)
    _added.update(fresh)
    return {name: thing for name, thing in _public.items() if before.get(name) is not thing}


def _module():
    if MODULE not in _made:
        module = types.ModuleType(MODULE, "Functions of the host. Each has an awaitable twin: `await add.aio(1, 2)`.")
        module.__spec__ = importlib.machinery.ModuleSpec(MODULE, None)
        module.__dict__.update(ToolError=ToolError, ToolRefused=ToolRefused, _call=call, _call_async=call_async)
        _made[MODULE] = sys.modules[MODULE] = module
    return _made[MODULE]


def _publish(module, sources):
    names = {name for name, _ in sources}
    _public.update(
        (name, thing)
        for name, thing in vars(module).items()
        if (not name.startswith("_") or name in names) and getattr(thing, "__module__", None) == MODULE
    )
    module.__all__ = sorted(_public)


def _define(module, name, source):
    if not isinstance(source, str):
        vars(module)["_define"](name, source)
        return
    filename = "<%s.%s>" % (MODULE, name)
    exec(compile(source, filename, "exec", dont_inherit=True), vars(module))
    if name == STUBS:
        return
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    function = vars(module).get(name)
    if not isinstance(function, types.FunctionType) or function.__code__.co_filename != filename:
        raise ValueError("the source defines no function of that name")
    function.aio = _awaitable(module, function)


def _awaitable(module, function):
    """Return the same function as a coroutine function: what its `_call` returns is awaited."""
    names = dict(vars(module), _call=call_async)
    twin = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    twin.__kwdefaults__ = function.__kwdefaults__

    @functools.wraps(function)
    async def awaitable(*args, **kwargs):
        return await twin(*args, **kwargs)

    awaitable.__qualname__ = function.__name__ + ".aio"
    return awaitable


def public():
    """Return what `__main__` gets of the module: the functions, their classes, and the exceptions."""
    return dict(_public)


def open_client(fd, config):
    _Running.client = tool_client.ToolClient(Socket(fileno=fd), config["tools"]["call_bytes"])


def close_client():
    """End the calls of a block that has ended: those that still wait fail."""
    client, _Running.client = _Running.client, None
    if client is not None:
        client.close()


def call(name, arguments):
    """Call a tool of the host, with arguments by name that JSON can hold, and wait for its result."""
    client = _current()
    return _result(client.call(_request(client, name, arguments)))


async def call_async(name, arguments):
    """Call a tool like `call`, without blocking the event loop; cancelling it cancels the tool."""
    client = _current()
    return _result(await client.call_async(_request(client, name, arguments)))


def _current():
    client = _Running.client
    if client is None:
        raise RuntimeError("host tools can be called only while a Python block runs")
    return client


def _request(client, name, arguments):
    try:
        text = _text({"name": name, "arguments": arguments})
    except Exception:
        for key, value in arguments.items():
            _explain(name, key, value)
        raise
    if len(text) > client.limit:
        raise ValueError("the arguments of %s have %d bytes; at most %d can be sent" % (name, len(text), client.limit))
    return text.encode("ascii")


def _explain(name, key, value):
    try:
        _text(value)
    except Exception as error:
        text = "the argument %r of %s can't be sent to the host: %s" % (key, name, error)
        raise TypeError(text) from None


def _text(thing):
    text = _encode(thing)
    if "\\ud" in text:
        _encode_readably(thing).encode("utf-8")  # a lone surrogate is not text
    return text


def _result(payload):
    answer = _decode(payload.decode("utf-8"))
    if "error" in answer:
        raise _error_of(**answer["error"])
    return answer["value"]


def _error_of(name, message, bases, refused):
    if refused:
        return ToolRefused(message, name)
    for base in bases:
        builtin = getattr(builtins, base, None)
        if base not in _NOT_RAISED and isinstance(builtin, type) and issubclass(builtin, Exception):
            return _like(builtin, base == name)(message, name)
    return ToolError(message, name)


@functools.lru_cache(maxsize=None)
def _like(builtin, itself):
    """Return a `ToolError` class that is also a builtin exception; `itself` says whether the tool raised exactly that one."""
    if not itself:
        return type("ToolError", (ToolError, builtin), {"__module__": MODULE})
    return type(builtin.__name__, (ToolError, builtin), {"__module__": "builtins", "__str__": ToolRefused.__str__})
