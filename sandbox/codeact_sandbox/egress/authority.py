"""The certificate authority of one sandbox: its code trusts it, so that the host's proxy can read the requests with secrets."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from typing import Any

from codeact_sandbox.types.errors import SandboxUnavailable
from codeact_sandbox.types.host_names import is_address

_VALID = datetime.timedelta(days=365)
_MOST_HOSTS = 100
_CLOCK_SKEW = datetime.timedelta(days=1)


class Authority:
    """Makes certificates for the hosts of secrets. Its key is in memory only, for one sandbox."""

    def __init__(self) -> None:
        try:
            from cryptography import x509  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
            from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above
        except ImportError:
            raise SandboxUnavailable(
                "secrets= needs the package cryptography: pip install 'codeact-sandbox[secrets]'"
            ) from None
        self._x509, self._hashes, self._serialization, self._ec = x509, hashes, serialization, ec
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._certificate = self._sign("Authority of a sandbox", self._key.public_key(), None)
        # Its certificate.
        self.pem: str = self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _sign(self, name: str, public_key: Any, host: Any) -> Any:
        x509, now = self._x509, datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        extensions: list[tuple[Any, bool]] = [
            (x509.BasicConstraints(ca=host is None, path_length=None), True),
            (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ]
        if host is None:
            no = [False] * 5
            extensions.append((x509.KeyUsage(*no, True, True, False, False), True))  # to sign certificates and lists
        else:
            extensions.append((x509.SubjectAlternativeName([host]), False))
        made = x509.CertificateBuilder(
            issuer_name=subject if host is None else self._certificate.subject,
            subject_name=subject,
            public_key=public_key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _CLOCK_SKEW,
            not_valid_after=now + _VALID,
        )
        for extension, critical in extensions:
            made = made.add_extension(extension, critical=critical)
        return made.sign(self._key, self._hashes.SHA256())

    def context(self, host: str) -> ssl.SSLContext:
        """Return the server's end of TLS for a normalised host, with HTTP/1.1 only."""
        if host not in self._contexts:
            key = self._ec.generate_private_key(self._ec.SECP256R1())
            name = self._x509.IPAddress(ipaddress.ip_address(host)) if is_address(host) else self._x509.DNSName(host)
            encoding, form = self._serialization.Encoding.PEM, self._serialization.PrivateFormat.PKCS8
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            with tempfile.NamedTemporaryFile("wb") as file:  # which only this user can read; OpenSSL takes nothing else
                file.write(self._sign(host[:64], key.public_key(), name).public_bytes(encoding))
                file.write(key.private_bytes(encoding, form, self._serialization.NoEncryption()))
                file.flush()
                context.load_cert_chain(file.name)
            if len(self._contexts) >= _MOST_HOSTS:  # a wildcard stands for any number
                self._contexts.clear()
            self._contexts[host] = context
        return self._contexts[host]
