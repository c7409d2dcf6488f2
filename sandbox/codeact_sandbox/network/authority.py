"""The certificate authority of one sandbox.

The sandbox's code trusts it, so that the host's proxy can read the requests with secrets.
"""

from __future__ import annotations

import ssl
from importlib import import_module

from codeact_sandbox.types.allowed_domains import Refused
from codeact_sandbox.types.errors import SandboxUnavailable

_OWNER = "Authority of a sandbox"
_MOST_HOSTS = 100


class Authority:
    """Makes certificates for the hosts of secrets. Its key is in memory only, for one sandbox."""

    def __init__(self) -> None:
        try:
            trustme = import_module("trustme")
        except ImportError:
            raise SandboxUnavailable(
                "secrets= needs the package trustme: pip install 'codeact-sandbox[secrets]'"
            ) from None
        self._authority = trustme.CA(organization_name=_OWNER)
        self._contexts: dict[str, ssl.SSLContext] = {}
        # Its certificate.
        self.pem: str = self._authority.cert_pem.bytes().decode()

    def context(self, host: str) -> ssl.SSLContext:
        """Return the server's end of TLS for a normalised host, with HTTP/1.1 only."""
        if host not in self._contexts:
            try:
                certificate = self._authority.issue_cert(host, organization_name=_OWNER)
            except ValueError:
                raise Refused(f"{host} can't have a certificate: its name has an underscore") from None
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            certificate.configure_cert(context)
            if len(self._contexts) >= _MOST_HOSTS:  # a wildcard stands for any number
                self._contexts.clear()
            self._contexts[host] = context
        return self._contexts[host]
