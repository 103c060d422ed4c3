"""TLS between actor systems: contexts from files of certificates and keys.

Problem: every peer must present a certificate, and certificates expire: they are replaced while systems run.

Design: both ends present a certificate of one authority (mutual TLS), because every system both connects and
accepts. Shared keys are used even then: TLS prevents eavesdropping, a key proves membership. `TlsContexts`
checks the files before every handshake and reads them again when they have changed; unusable files are
reported in the log, and the previous ones stay in use.

Invariants:
1. A private key that users other than its owner may read is refused.
2. Each handshake uses the newest usable files.

Called by `TcpTransport`.
"""

from __future__ import annotations

import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drivetrain.actor.remote.remote_errors import TlsConfigError
from drivetrain.private_files import Stamp, stamp_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files: this system's certificate and key, and the authority that signs all certificates.

    `verifies_host` also requires that a certificate names the host that was connected to.
    """

    certificate: Path
    key: Path
    authority: Path
    verifies_host: bool = True

    def server_context(self) -> ssl.SSLContext:
        """The context for accepted connections; raises `TlsConfigError`."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client_context(self) -> ssl.SSLContext:
        """The context for outgoing connections; raises `TlsConfigError`."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verifies_host
        return context

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            self._require_private()
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

    def _require_private(self) -> None:
        mode = self.key.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TlsConfigError(
                "users other than the owner can read the private key for TLS",
                where=str(self.key),
                expected="mode 600",
                got=f"mode {stat.S_IMODE(mode):o}",
                remedy=f"chmod 600 {self.key}, and make a new key if someone may have read it",
            )


class TlsContexts:
    """The contexts of `settings` from its current files; raises `TlsConfigError` for unusable ones."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings: Final = settings
        self._seen = _look(settings)
        self._server = settings.server_context()
        self._client = settings.client_context()

    def server(self) -> ssl.SSLContext:
        """The context for accepted connections."""
        self._renew()
        return self._server

    def client(self) -> ssl.SSLContext:
        """The context for outgoing connections."""
        self._renew()
        return self._client

    def _renew(self) -> None:
        seen = _look(self._settings)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._server, self._client = self._settings.server_context(), self._settings.client_context()
        except TlsConfigError as error:
            # Perhaps only some of the files are in place yet: they are tried again when they change.
            log.warning("the new files for TLS are not used, those from before are: %s", error)
        else:
            log.info("read the files for TLS anew: %s has changed", self._settings.certificate)


def _look(settings: TlsSettings) -> tuple[Stamp | None, ...]:
    """The identity of each file (certificate, key, authority), which changes when the file does."""
    return tuple(stamp_of(path) for path in (settings.certificate, settings.key, settings.authority))
