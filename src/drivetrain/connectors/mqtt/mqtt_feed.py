"""The feed of an MQTT source: messages from a broker, acknowledged when they are stored.

Problem: the broker forgets a message when it is acknowledged, and connections and brokers end at any time.

Design: the client of paho-mqtt has a thread that connects, again and again, and calls the methods `_on_…`
here. Messages wait in a queue for the thread that pulls them (`open`); the thread that stores them calls
`acknowledge`. `Deliveries` decides what is a duplicate and what may be acknowledged. The broker sends at most
`receive_maximum` messages without an acknowledgement, which bounds the queue; if messages with QoS 0 fill it,
the client's thread waits, and the broker's connection with it.

What if we die here: a message that is not stored was not acknowledged, so the broker sends it again, to the
process that continues the session. If we die between storing and acknowledging, a message comes twice.
`session.json` notes, after a subscription, that there is a session and what it subscribes to: if the broker
has none later, messages may be missing.

Invariants:

1. A message is acknowledged only after it is stored, and only in the session that it came in.
2. Acknowledging and everything that changes the session happen under one lock.

Called by `connector`; its methods by `spark.channel.ingest_threads` and by the client's thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from drivetrain.api.connectors.mqtt_source import Mqtt
from drivetrain.connectors.mqtt.deliveries import Deliveries
from drivetrain.connectors.mqtt.mqtt_connection import (
    REACH_S,
    away,
    begin_connecting,
    new_client,
    refusal,
    set_credentials,
    short_connections,
    subscription,
)
from drivetrain.durable import write_whole, writing
from drivetrain.errors import InputError
from drivetrain.spark.connector.feed import Feed

log = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
_SHORT_S: Final = 5.0
_MOST_SHORT: Final = 5
"""So many connections in a row, each of which the broker ends after so short a time, are an error."""
_FAILURE: Final = 128
"""Reasons from here on are failures."""

Row = tuple[str, str | bytes, int, bool, int]


class MqttFeed(Feed):
    """The messages of the topics of `source`, in the session of `client_id`; `home` is for the note."""

    ends_on_close = True
    wait_ms = 20  # brokers send few messages without an acknowledgement: Mosquitto 20, unless configured

    def __init__(self, source: Mqtt, client_id: str, home: Path) -> None:
        self._source: Final = source
        self._client_id: Final = client_id
        self._note: Final = home / "session.json"
        self._news: Final = threading.Condition(threading.RLock())
        self._arrived: Final[deque[Row]] = deque()
        self._deliveries = Deliveries(0)
        self._client: Any = None
        self._error: Exception | None = None
        self._is_closed = False
        self._is_connected = False
        self._is_lost = False
        self._has_settled: Final = threading.Event()
        self._connected_at_s = self._away_since_s = 0.0
        self._short_connections = 0
        self._away_why = "no connection yet"

    # -- the threads that pull and store ----------------------------------------------------------

    def open(self, skip: int) -> Iterator[Row]:
        """The messages from now on; they are numbered from `skip`."""
        self._deliveries = Deliveries(skip)
        self._away_since_s = time.monotonic()
        self._client = client = new_client(self._source, self._client_id)
        client.on_pre_connect = self._guarded(lambda client, _: set_credentials(client, self._source))
        client.on_connect = self._guarded(self._on_connect)
        client.on_subscribe = self._guarded(self._on_subscribe)
        client.on_message = self._guarded(self._on_message)
        client.on_disconnect = self._guarded(self._on_disconnect)
        client.on_connect_fail = self._guarded(self._on_connect_fail)
        begin_connecting(client, self._source)
        while True:
            with self._news:
                if not (self._arrived or self._error or self._is_closed):
                    self._news.wait(_LOOK_S)
                if self._is_closed:
                    return
                row = self._arrived.popleft() if self._arrived else None
                self._news.notify_all()
            if row is not None:
                yield row
            else:
                self._raise_failure()

    def close(self) -> None:
        """End `open`: what it has not yielded comes again in the next run."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    def acknowledge(self, stored: int) -> None:
        """Acknowledge the messages that are stored, if the broker is connected."""
        with self._news:
            self._deliveries.stored(stored)
            if self._is_connected:
                for identifier in self._deliveries.due:
                    self._client.ack(identifier, 1)
                    self._deliveries.acknowledged(identifier)

    def release(self) -> None:
        """Disconnect, after the last acknowledgements; the broker keeps the session."""
        if self._client is None:
            return
        with self._news:
            is_connected = self._is_connected
        if is_connected:
            # What a closed connection still had on its way can be lost. The broker answers in the order of
            # requests, so with this answer it has handled the acknowledgements.
            self._client.subscribe(subscription(self._source))
            self._has_settled.wait(REACH_S)
        self._client.disconnect()
        self._client.loop_stop()

    def _raise_failure(self) -> None:
        with self._news:
            error, is_away = self._error, not self._is_connected
            away_s = time.monotonic() - self._away_since_s
        if error is not None:
            raise error
        if is_away and away_s * 1000 > self._source.give_up_after_ms:
            raise away(self._source, f"{self._away_why}, for {away_s:.0f} s")

    # -- the client's thread ----------------------------------------------------------------------

    def _guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """The callback, whose errors end the feed instead of the client's thread."""

        def called(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - `open` raises it
                self._fail(error)

        return called

    def _fail(self, error: Exception) -> None:
        with self._news:
            self._error = self._error or error
            self._news.notify_all()

    def _on_connect(self, client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._away_why = f"the broker refuses the connection: {reason}"
            error = refusal(self._source, self._client_id, reason)
            if error is not None:
                raise error
            return
        known = self._subscribed()
        with self._news:
            self._deliveries.connected(has_session=flags.session_present)
            self._is_connected, self._connected_at_s = True, time.monotonic()
            self._is_lost = self._is_lost or (bool(known) and not flags.session_present)
        gone = [topic for topic in known if topic not in self._source.topics]
        if gone and flags.session_present:
            client.unsubscribe(gone)
        client.subscribe(subscription(self._source))

    def _on_subscribe(self, _client: Any, _data: Any, _id: int, reasons: list[Any], _properties: Any) -> None:
        if self._is_closed:
            self._has_settled.set()
            return
        for topic, reason in zip(self._source.topics, reasons, strict=True):
            if reason.value >= _FAILURE or reason.value < self._source.qos:
                raise InputError(
                    "the broker does not grant a subscription",
                    where=self._source.name,
                    expected=f"{topic} with QoS {self._source.qos}",
                    got=str(reason),
                    remedy="check what the broker allows this user to read, or subscribe to another topic",
                )
        if self._source.qos == 0:
            return
        is_lost, self._is_lost = self._is_lost, False
        with writing("what a source subscribes to", self._note.parent):
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._note, json.dumps({"topics": self._source.topics}).encode())
        if is_lost:
            self._report_loss()

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        row = self._row(message)
        with self._news:
            while len(self._arrived) >= self._source.receive_maximum and not self._is_closed:
                self._news.wait(_LOOK_S)
            identifier = message.mid if message.qos else None
            if not self._is_closed and self._deliveries.received(identifier, again=message.dup):
                self._arrived.append(row)
                self._news.notify_all()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        with self._news:
            if self._is_connected:
                self._is_connected, self._away_since_s = False, time.monotonic()
                is_short = self._away_since_s - self._connected_at_s < _SHORT_S
                self._short_connections = self._short_connections + 1 if is_short else 0
            self._away_why = f"the connection has ended: {reason}"
        error = refusal(self._source, self._client_id, reason)
        if self._short_connections >= _MOST_SHORT:
            error = error or short_connections(self._source, self._client_id, self._short_connections)
        if error is not None and not self._is_closed:
            raise error

    def _on_connect_fail(self, _client: Any, _data: Any) -> None:
        self._away_why = "it cannot be reached"

    def _row(self, message: Any) -> Row:
        payload: str | bytes = message.payload
        if self._source.format == "text":
            try:
                payload = message.payload.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    "the payload of a message is not UTF-8",
                    where=f"topic {message.topic} of {self._source.name}",
                    got=repr(message.payload[:80]),
                    remedy='read bytes with format="raw"; the message is not acknowledged, and comes again',
                ) from error
        return message.topic, payload, message.qos, message.retain, time.time_ns() // 1000

    def _subscribed(self) -> list[str]:
        """What the session subscribes to, if there is one."""
        if self._source.qos == 0 or not self._note.exists():
            return []
        return list(json.loads(self._note.read_bytes())["topics"])

    def _report_loss(self) -> None:
        error = InputError(
            "the broker no longer has the session of the source, so messages may be lost",
            where=self._source.name,
            got=f"a new session of the client {self._client_id!r}",
            remedy="let the broker keep sessions when it is restarted (Mosquitto: persistence true), and for "
            "longer (session_expiry); run the same command again to continue without them, or add "
            'on_session_loss="continue" to the source',
        )
        if self._source.on_session_loss == "fail":
            raise error
        log.warning("%s", error)
