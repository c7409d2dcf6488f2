"""An extension of griffe for the reference: `Sandbox.exec = _waiting(AsyncSandbox.exec)` is shown as the method that it is."""

import re
from typing import Any

import griffe

ALIAS = re.compile(r"(?:_\w+\()?(\w+)\.(\w+)\)?")


class MethodsOfOthers(griffe.Extension):
    """Replaces attributes whose value is a function of another class or module by that function."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace them in the classes of a package."""
        if pkg.name != "codeact_sandbox":
            return
        places = {name: pkg[name] for name in ("commands",) if name in pkg.members}
        for name, method in pkg["files.operations.FileOperations"].members.items():
            if isinstance(method, griffe.Function):
                pkg["async_sandbox.AsyncSandbox"].set_member(name, method)
        # In this order, because each refers to the one before.
        for module, kind in (("async_sandbox", "AsyncSandbox"), ("sync_sandbox", "Sandbox")):
            owner = pkg[module][kind]
            for name, member in list(owner.members.items()):
                found = ALIAS.fullmatch(str(getattr(member, "value", None)))
                place = places.get(found[1]) if found else None
                function = place.members.get(found[2]) if found and place is not None else None
                if isinstance(function, griffe.Function):
                    owner.set_member(name, _method(member, function, "async" if module != "sync_sandbox" else ""))
            places[owner.name] = owner


def _method(member: Any, function: griffe.Function, label: str) -> griffe.Function:
    first, *others = function.parameters
    own = griffe.Parameter("self", kind=first.kind)
    method = griffe.Function(member.name, parameters=griffe.Parameters(own, *others), returns=function.returns)
    method.lineno, method.endlineno = member.lineno, member.endlineno
    if function.docstring is not None:
        text = re.sub(rf"^ *{first.name}: .*\n", "", function.docstring.value, flags=re.MULTILINE)
        method.docstring = griffe.Docstring(text, parent=method)
    method.labels = {label} if label else set()
    return method
