"""Actor systems over the network: transports, authentication, associations and death watch."""

from drivetrain.actor.remote.inbound_message import Guard, InboundMessage
from drivetrain.actor.remote.keys import Keys, SharedSecrets
from drivetrain.actor.remote.remote import Remote, attach_remote
from drivetrain.actor.remote.remote_errors import (
    AddressInUseError,
    BindError,
    ConnectError,
    HandshakeError,
    InsecureBindError,
    MessageTooLargeError,
    PortsInUseError,
    ProtocolViolationError,
    TlsConfigError,
)
from drivetrain.actor.remote.remote_settings import RemoteSettings
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
    "Guard",
    "HandshakeError",
    "InboundMessage",
    "InsecureBindError",
    "Keys",
    "Listener",
    "MessageTooLargeError",
    "Opener",
    "PortsInUseError",
    "ProtocolViolationError",
    "Remote",
    "RemoteSettings",
    "SharedSecrets",
    "TcpTransport",
    "TlsConfigError",
    "TlsSettings",
    "Transport",
    "attach_remote",
]
