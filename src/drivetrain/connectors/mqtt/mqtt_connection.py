"""Connects to a broker: the client of paho-mqtt, TLS, credentials; and explains a broker's refusals.

Called by `mqtt_feed` and by the connector. Source: the documentation of paho-mqtt; section 2.4 of MQTT 5.0.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from drivetrain.api.connectors.mqtt_source import Mqtt
from drivetrain.config.references import resolved
from drivetrain.errors import DrivetrainError, InputError, MissingDependencyError, UnavailableError

if TYPE_CHECKING:
    from paho.mqtt.client import Client

REACH_S: Final = 5.0
LONGEST_WAIT_S: Final = 30
"""The longest time between two tries to connect."""
SESSION_TAKEN_OVER: Final = 142
_NOT_ALLOWED: Final = frozenset({134, 135, 138, 140})
_REFUSED: Final = frozenset({129, 130, 132, 133, 144, 149, 155, 157})
"""Reasons of a broker that trying again does not change: protocol, client identifier, server moved."""


def mqtt_library() -> Any:
    """The module `paho.mqtt.client`; raises `MissingDependencyError` without it."""
    try:
        import paho.mqtt.client
    except ImportError as error:
        raise MissingDependencyError(
            "MQTT sources need the package paho-mqtt",
            remedy="pip install 'drivetrain[mqtt]'; in a cluster on every worker",
        ) from error
    return paho.mqtt.client


def new_client(source: Mqtt, client_id: str) -> Client:
    """A client for the source that is not connected yet, and leaves acknowledgements to its caller."""
    library = mqtt_library()
    client = library.Client(
        library.CallbackAPIVersion.VERSION2,
        client_id=client_id,
        protocol=library.MQTTv5,
        manual_ack=True,
    )
    context = tls_context(source)
    if context is not None:
        client.tls_set_context(context)
    client.reconnect_delay_set(min_delay=1, max_delay=LONGEST_WAIT_S)
    client.connect_timeout = REACH_S
    return client


def begin_connecting(client: Client, source: Mqtt) -> None:
    """Connect, now and whenever the connection ends, in a thread of the client's own."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = min(source.session_expiry_ms // 1000, 0xFFFFFFFF)
    properties.ReceiveMaximum = source.receive_maximum
    address = source.address
    client.connect_async(
        address.host,
        address.port,
        keepalive=source.keep_alive_ms // 1000,
        clean_start=source.qos == 0,
        properties=properties,
    )
    client.loop_start()


def set_credentials(client: Client, source: Mqtt) -> None:
    """Set user and password, as their references stand for them now; raises `SecretNotFoundError`."""
    address = source.address
    user, password = (
        None if text is None else resolved(text, f"the broker of {source.name}")
        for text in (address.user, address.password)
    )
    client.username_pw_set(user, password)


def subscription(source: Mqtt) -> list[Any]:
    """The topics with their options: what the broker had retained comes with the first subscription only."""
    from paho.mqtt.subscribeoptions import SubscribeOptions

    return [(topic, SubscribeOptions(qos=source.qos, retainHandling=1)) for topic in source.topics]


def tls_context(source: Mqtt) -> ssl.SSLContext | None:
    """What TLS needs; None without TLS. Raises `InputError` for certificates that cannot be read."""
    if not source.address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=source.ca)
        if source.certificate is not None:
            context.load_cert_chain(source.certificate, source.key)
    except OSError as error:
        raise InputError(
            "the certificates for the broker cannot be read",
            where=source.name,
            expected="PEM files: ca, certificate and key",
            got=str(error),
            remedy="correct their paths; in a cluster every worker needs the files",
        ) from error
    return context


def require_broker(source: Mqtt) -> None:
    """Raise an error unless a broker listens, within seconds, and TLS trusts it; needs no Spark."""
    mqtt_library()
    context, address = tls_context(source), source.address
    try:
        with socket.create_connection((address.host, address.port), timeout=REACH_S) as connection:
            if context is not None:
                context.wrap_socket(connection, server_hostname=address.host).close()
    except ssl.SSLError as error:
        raise InputError(
            "TLS with the broker fails",
            where=source.name,
            got=str(error),
            remedy="name the authority of its certificate with ca=, and the host as the certificate does; "
            "a port without TLS needs mqtt://",
        ) from error
    except OSError as error:
        raise away(source, str(error)) from error


def away(source: Mqtt, got: str) -> UnavailableError:
    """The error for a broker that cannot be reached."""
    return UnavailableError(
        "no MQTT broker answers there",
        where=source.name,
        got=got,
        remedy="start it, or correct its address; then run the same command again: it continues, and the "
        "broker sends what it has kept for the session",
    )


def short_connections(source: Mqtt, client_id: str, count: int) -> UnavailableError:
    """The error for a broker that ends every connection at once and does not give the reason."""
    return UnavailableError(
        "the broker ends every connection after a moment",
        where=source.name,
        got=f"{count} connections of the client {client_id!r}",
        remedy="check whether another process uses the same client_id, and what the broker's log says; then "
        "run the same command again: it continues",
    )


def refusal(source: Mqtt, client_id: str, reason: Any) -> DrivetrainError | None:
    """The error for a reason with which the broker ends or refuses a connection; None: try again."""
    if reason.value in _NOT_ALLOWED:
        return InputError(
            "the broker does not let the source connect",
            where=source.name,
            got=f"{reason} (client {client_id!r})",
            remedy="check user and password in its address, and what the broker allows them",
        )
    if reason.value == SESSION_TAKEN_OVER:
        return InputError(
            "another client has taken over the session",
            where=source.name,
            got=f"a client with the identifier {client_id!r}",
            remedy="run the application once, or give each its own client_id",
        )
    if reason.value in _REFUSED:
        return InputError(
            "the broker refuses the connection",
            where=source.name,
            expected="a broker of MQTT 5",
            got=f"{reason} (client {client_id!r})",
            remedy="check the broker's version and log; client_id names the session",
        )
    return None
