"""TLS between actor systems: files in, contexts out.

Design: both ends show a certificate of one authority (mutual TLS), since every system both connects and is
connected to. The shared secret is used all the same: TLS keeps others from reading, the secret says who
belongs.

Called by `TcpTransport`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from drivetrain.actor.remote.errors import TlsConfigError


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files: this system's certificate and key, and the authority that signs everybody's.

    `verifies_host` also requires that a certificate names the host that was connected to.
    """

    certificate: Path
    key: Path
    authority: Path
    verifies_host: bool = True

    def server_context(self) -> ssl.SSLContext:
        """For accepted connections; raises `TlsConfigError`."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client_context(self) -> ssl.SSLContext:
        """For own connections; raises `TlsConfigError`."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verifies_host
        return context

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except (OSError, ssl.SSLError) as error:
            raise TlsConfigError(
                f"the files for TLS cannot be used: {error}",
                where=f"{self.certificate}, {self.key}, {self.authority}",
                expected="a certificate, its key and an authority, each in PEM form",
                remedy="check that the files are readable and that the key belongs to the certificate",
            ) from error
        return context
