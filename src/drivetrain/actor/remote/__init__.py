"""Actor systems over the network: transports, authentication, associations and death watch."""

from drivetrain.actor.remote.errors import (
    AddressInUseError,
    BindError,
    ConnectError,
    HandshakeError,
    InsecureBindError,
    MessageTooLargeError,
    ProtocolViolationError,
    TlsConfigError,
)
from drivetrain.actor.remote.remote import Remote, attach_remote
from drivetrain.actor.remote.settings import RemoteSettings
from drivetrain.actor.remote.tcp import TcpTransport
from drivetrain.actor.remote.tls import TlsSettings
from drivetrain.actor.remote.transport import Connection, ConnectionEvents, Frame, Listener, Opener, Transport

__all__ = [
    "AddressInUseError",
    "BindError",
    "ConnectError",
    "Connection",
    "ConnectionEvents",
    "Frame",
    "HandshakeError",
    "InsecureBindError",
    "Listener",
    "MessageTooLargeError",
    "Opener",
    "ProtocolViolationError",
    "Remote",
    "RemoteSettings",
    "TcpTransport",
    "TlsConfigError",
    "TlsSettings",
    "Transport",
    "attach_remote",
]
