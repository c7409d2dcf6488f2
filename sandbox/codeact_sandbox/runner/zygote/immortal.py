"""Makes objects immortal: Python does not count their references, so forked processes share their memory though they use them."""

import ctypes
import gc
import struct
import sys
import types

# Those whose layout is known: an object begins with its reference count, whose lower 32 bits say whether it is immortal.
# An interpreter with ABI flags has another layout: it is for debugging, or has no global lock.
_VERSIONS = ((3, 12), (3, 13))
_IMMORTAL = 0xFFFFFFFF
_ADDRESS_BITS = 47


def is_possible():
    """Return whether this interpreter has immortal objects in the known layout."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in _VERSIONS
        and sys.byteorder == "little"
        and struct.calcsize("P") == 8
        and not sys.abiflags
        and ctypes.c_uint32.from_address(id(None)).value == _IMMORTAL
    )


def make_immortal():
    """Make the objects immortal that exist now and that the garbage collector knows, with what they refer to.

    A forked process writes to most of these in any case: modules, functions, their code and their names.
    """
    if not is_possible():
        return 0
    memory = (ctypes.c_uint32 * (1 << _ADDRESS_BITS - 2)).from_address(0)
    objects = gc.get_objects()
    objects += [each.__code__ for each in objects if type(each) is types.FunctionType]
    for address in map(id, objects):
        memory[address >> 2] = _IMMORTAL
    return len(objects)
