"""The source of MQTT messages: the declaration that a user writes.

The problem: a broker sends a message once, and forgets it when its receiver acknowledges it. The design: a
push source, whose messages are acknowledged when they are stored, in a session that the broker keeps.

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.
2. A password in it is a reference.

Called by applications through `drivetrain.api.sources`; read by the planner and the connector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from drivetrain.api.connectors.custom_source import PushSource
from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of
from drivetrain.config.references import HOW, set_apart
from drivetrain.errors import GraphError

MqttFormat: TypeAlias = Literal["text", "raw"]
OnSessionLoss: TypeAlias = Literal["fail", "continue"]
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_PLACE = "mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS"
_MOST = 65_535


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker listens, and who connects; `user` and `password` may be references."""

    host: str
    port: int
    tls: bool
    user: str | None = None
    password: str | None = None


@dataclass(frozen=True, kw_only=True)
class Mqtt(PushSource):
    """Messages of MQTT topics; see `mqtt`."""

    broker: str
    topics: tuple[str, ...]
    qos: Literal[0, 1] = 1
    format: MqttFormat = "text"
    client_id: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    keep_alive_ms: int = 30_000
    session_expiry_ms: int = 7 * 86_400_000
    receive_maximum: int = 100
    on_session_loss: OnSessionLoss = "fail"
    give_up_after_ms: int = 600_000

    def __post_init__(self) -> None:
        address = self.address
        if self.qos not in (0, 1):
            raise _wrong(
                "a source cannot subscribe with this QoS",
                "qos=1, or qos=0",
                self.qos,
                "qos=1 receives messages that were published with QoS 2, too, and loses none of them",
            )
        if not self.topics:
            raise _wrong("an MQTT source needs a topic", 'topic="sensors/+/temperature"', self.topics)
        for topic in self.topics:
            _check_filter(topic)
        for name, known in (("format", ("text", "raw")), ("on_session_loss", ("fail", "continue"))):
            if getattr(self, name) not in known:
                raise _wrong(f"unknown {name}", " or ".join(known), getattr(self, name))
        if not 0 < self.receive_maximum <= _MOST:
            raise _wrong("receive_maximum is out of range", f"1 to {_MOST}", self.receive_maximum)
        if not 1_000 <= self.keep_alive_ms <= _MOST * 1_000:
            raise _wrong("keep_alive is out of range", f"1 s to {_MOST} s", f"{self.keep_alive_ms} ms")
        if (self.ca or self.certificate) and not address.tls:
            raise _wrong("certificates are for TLS", "mqtts:// in place of mqtt://", self.broker)
        if (self.certificate is None) != (self.key is None):
            raise _wrong("a client certificate has two files", "certificate and key, or neither", self.key)

    @property
    def address(self) -> BrokerAddress:
        """The parts of `broker`; raises `GraphError`."""
        text, references = set_apart(self.broker)
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong("the address of the broker cannot be read", _PLACE, self.shown_broker) from error
        if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query:
            raise _wrong("this is not the address of an MQTT broker", _PLACE, self.shown_broker)
        if parts.password is not None and parts.password not in references:
            raise _wrong(
                "there is a password in the address",
                "a reference such as ${MQTT_PASSWORD} in its place",
                self.shown_broker,
                f"{HOW}: an application file is no place for secrets",
            )
        user, password = (
            None if given is None else references.get(given, unquote(given))
            for given in (parts.username, parts.password)
        )
        return BrokerAddress(host, port or _PORTS[parts.scheme], parts.scheme == "mqtts", user, password)

    @property
    def shown_broker(self) -> str:
        """The address without user and password."""
        scheme, _, place = self.broker.rpartition("://")
        return f"{scheme}://{place.rpartition('@')[2]}" if scheme else place.rpartition("@")[2]

    @property
    def name(self) -> str:
        """The topics and the broker, as plans and errors show them."""
        return f"{', '.join(self.topics)} at {self.shown_broker}"

    @property
    def columns(self) -> str:
        """The columns of its messages, as DDL."""
        payload = "string" if self.format == "text" else "binary"
        return f"topic string, payload {payload}, qos int, retained boolean, received timestamp"

    @property
    def caveat(self) -> str:
        """What can happen to messages before they are stored."""
        if self.qos == 0:
            return "with QoS 0 the broker discards messages while no process receives them"
        return (
            "after a crash or a lost connection the broker sends again what it has no acknowledgement of, "
            "and what was stored by then counts twice"
        )


def mqtt(
    broker: str,
    topic: str | Sequence[str],
    *,
    qos: Literal[0, 1] = 1,
    format: MqttFormat = "text",
    client_id: str | None = None,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    keep_alive: str = "30 s",
    session_expiry: str = "7 days",
    receive_maximum: int = 100,
    on_session_loss: OnSessionLoss = "fail",
    give_up_after: str = "10 min",
) -> Mqtt:
    """Messages of MQTT topics, by MQTT 5; needs the package's extra `mqtt`.

    `broker` is `mqtt://host:port`, or `mqtts://` for TLS; `mqtts://user:${MQTT_PASSWORD}@host` has a user and
    a reference to the password. `topic` is a topic or several, with MQTT's wildcards `+` and `#`. A message
    has the columns `topic`, `payload` (by `format`, text in UTF-8 or bytes), `qos`, `retained` (the broker
    had kept it before the subscription) and `received` (timestamp).

    With `qos=1`, a message is acknowledged when it is stored durably, so none is lost when a process dies.
    The broker may send messages again that were stored; `qos=0` loses messages. `client_id` names the session
    that the broker keeps for `session_expiry` while no process is connected; its default is made from the
    application's id and the source's. `on_session_loss` decides what happens when the broker has lost the
    session. At most `receive_maximum` messages wait for their acknowledgement. A broker that is away is tried
    again for `give_up_after`. `ca`, `certificate` and `key` are PEM files: the authorities (None: those of
    the system) and the client's own certificate.

    Raises `GraphError` for invalid arguments, and for a literal password.

    >>> source = mqtt("mqtts://shop:${MQTT_PASSWORD}@broker", "sensors/+/temperature")
    >>> source.name
    'sensors/+/temperature at mqtts://broker'
    >>> source.bounded
    False
    """
    return Mqtt(
        broker=broker,
        topics=names_of(topic),
        qos=qos,
        format=format,
        client_id=client_id,
        ca=ca,
        certificate=certificate,
        key=key,
        keep_alive_ms=milliseconds(keep_alive, "keep_alive"),
        session_expiry_ms=milliseconds(session_expiry, "session_expiry"),
        receive_maximum=receive_maximum,
        on_session_loss=on_session_loss,
        give_up_after_ms=milliseconds(give_up_after, "give_up_after"),
    )


def _check_filter(topic: str) -> None:
    """Raise `GraphError` for a text that is no topic filter of MQTT."""
    levels = topic.split("/")
    is_right = bool(topic) and "\0" not in topic and len(topic.encode()) <= _MOST
    is_right = is_right and all(level in ("+", "#") or not set(level) & set("+#") for level in levels)
    if not is_right or "#" in levels[:-1]:
        raise _wrong(
            "this is not a topic filter",
            "levels between /; + is one level, # the rest, at the end",
            topic,
        )


def _wrong(what: str, expected: str, got: object, remedy: str | None = None) -> GraphError:
    return GraphError(what, where="sources.mqtt", expected=expected, got=repr(got), remedy=remedy)
