"""The errors between two actor systems.

Contrast: `ConnectError` means that nothing answered, `HandshakeError` that the peer that answered was not the
expected one, `ProtocolViolationError` that an accepted peer sent something that it must not.
"""

from __future__ import annotations

from drivetrain.actor.actor_errors import MessageRefusedError
from drivetrain.errors import PeerViolationError, UnavailableError, UserError


class MessageTooLargeError(MessageRefusedError):
    """A message is larger than the frame limit; raised at the sender, nothing was sent.

    `size_bytes` is what the message needs, `limit_bytes` the limit (`actor.frame-limit`).
    """

    code = "actor-message-too-large"

    def __init__(self, where: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            "a message is too large to be sent to another process",
            where=where,
            expected=f"at most {limit_bytes} bytes",
            got=f"{size_bytes} bytes",
            remedy="send it in parts, or through a file; or raise actor.frame-limit on both sides",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class InsecureBindError(UserError):
    """An actor system would be reachable from other machines without a shared secret."""

    code = "actor-insecure-bind"


class TlsConfigError(UserError):
    """A certificate, key or authority for TLS cannot be used."""

    code = "actor-tls"


class AddressInUseError(UserError):
    """Another process already uses the port."""

    code = "actor-address-in-use"

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            "the port is in use by another process",
            where=f"{host}:{port}",
            remedy="stop that process, or choose another port (0 lets the system choose)",
        )


class PortsInUseError(UserError):
    """All ports that the system may choose from are in use."""

    code = "actor-ports-in-use"

    def __init__(self, host: str, ports: range) -> None:
        super().__init__(
            "all ports that this process may use are in use",
            where=f"{host}:{ports[0]}-{ports[-1]}",
            remedy="allow more with cluster.ports: each worker, application master and executor takes one",
        )


class BindError(UserError):
    """The host to listen on is not one of this machine, or the port may not be used."""

    code = "actor-bind"


class ConnectError(UnavailableError):
    """No connection was established: refused, unreachable, or no answer in time."""

    code = "actor-connect"


class HandshakeError(PeerViolationError):
    """The peer that answered is the wrong one: it has another secret, system, incarnation or version.

    `reason` is the short stable word that is also sent over the wire; `is_from_peer` means that the peer
    found the fault, not we.
    """

    code = "actor-handshake"

    def __init__(
        self, what: str, *, reason: str, remedy: str | None = None, is_from_peer: bool = False
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.reason = reason
        self.is_from_peer = is_from_peer


class ProtocolViolationError(PeerViolationError):
    """A peer sent bytes that are not a frame, a frame over the limit, or one that is not valid now."""

    code = "actor-protocol-violation"
