"""Queries Kafka's brokers for a sink: does the topic exist, what are its limits, what was published.

The problem: a sink that cannot work must be reported before anything runs, within seconds, and with a
remedy. Kafka's client waits, retries and then reports "timed out", whatever the reason was.

The design: an administration client with bounded times. Its errors and those of a producer are classified
here, in one place, by who must act: the user (`OutputError`) or nobody yet (`UnavailableError`). The reason
why a broker did not answer (a refused login, a certificate) reaches the client by another route,
`note_error`, and is reported instead of the timeout.

The marker of `core.checkpoint.publication` is an offset of the sink's own consumer group, on partition 0
of its topic: batch n is offset n + 1, and the token is the offset's metadata. It can be written in a
transaction, by means of Kafka's transactional offsets; no consumer uses that group.

Invariants:

1. Nothing here changes the topic, except `create`.
2. No call takes longer than its time limit; no error contains a secret.

Called by the Kafka sink's writers and its producer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.connectors.kafka.client_options import Secrets, for_librdkafka
from drivetrain.connectors.kafka.kafka_rows import Limits
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.errors import DrivetrainError, MissingDependencyError, OutputError, UnavailableError

log = logging.getLogger("drivetrain.kafka")
_client_log = logging.getLogger("drivetrain.kafka.client")
_client_log.addHandler(logging.NullHandler())
"""The client library's log, for listeners; relevant parts of it are also reported as errors."""

REACH_S = 20.0
"""How long a broker may take to answer a request before anything has started."""
_LOOK_S = 0.2
DEFAULT_MESSAGE_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes, for when the topic's may not be read."""


class KafkaTarget:
    """The topic of one sink; connects at its first use. `group` keeps the sink's marker."""

    def __init__(self, sink: KafkaSink, options: Mapping[str, str], group: str) -> None:
        self.sink = sink
        self.options = dict(options)
        self.group = group
        self.secrets = Secrets(self.options)
        self._admin: Any = None
        self._refused: Any = None
        self._message_bytes: int | None = None

    # -- connections -------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """The settings of every librdkafka client; raises `OutputError` for options that it does not know."""
        return {
            "bootstrap.servers": self.sink.bootstrap,
            "error_cb": self.note_error,
            "logger": _client_log,
            "reconnect.backoff.max.ms": 1000,
            **for_librdkafka(self.options, self.sink.name),
        }

    def made(self, client: Any, settings: Mapping[str, Any]) -> Any:
        """A client with these settings; raises `OutputError` when it refuses them."""
        from confluent_kafka import KafkaException

        try:
            return client(dict(settings))
        except (KafkaException, ValueError, TypeError) as error:
            raise self.refused_options(str(error)) from None

    def refused_options(self, got: str) -> OutputError:
        """The error for options that a client refuses."""
        return OutputError(
            "Kafka's client refuses the options of the sink",
            where=self.sink.name,
            got=self.secrets.scrubbed(got),
            remedy="correct the options: producer settings under Kafka's own names",
        )

    def note_error(self, error: Any) -> None:
        """Note an error that a client reports outside its calls; a refused login explains later errors."""
        log.info("%s: %s", self.sink.name, self.secrets.scrubbed(str(error)))
        if error.name() in _REFUSED:
            self._refused = error

    def try_again(self) -> None:
        """Forget an earlier refusal of a broker: a login may be allowed by now."""
        self._refused = None

    @property
    def is_refused(self) -> bool:
        """Whether a broker refused the login or connection: waiting does not help then."""
        return self._refused is not None

    def admin(self) -> Any:
        """The administration client."""
        if self._admin is None:
            self._admin = self.made(confluent_kafka().admin.AdminClient, self.settings())
        return self._admin

    # -- requests ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise unless the brokers answer and the topic exists, or may be created."""
        if self.sink.topic is None:
            self._answered(lambda: self.admin().list_topics(timeout=REACH_S))
        elif self.partitions() is None:
            if self.sink.create is None:
                raise self._no_topic()
            self.create(only_check=True)

    def partitions(self) -> int | None:
        """How many partitions the topic has; None if it does not exist."""
        kafka = confluent_kafka()
        assert self.sink.topic is not None
        topics = kafka.TopicCollection([self.sink.topic])

        def ask() -> Any:
            found = self.admin().describe_topics(topics, request_timeout=REACH_S)
            return self._result(found[self.sink.topic])

        try:
            return len(self._answered(ask, {"UNKNOWN_TOPIC_OR_PART"}).partitions)
        except LookupError:
            return None

    def create(self, *, only_check: bool = False) -> None:
        """Create the topic unless it exists; with `only_check` only check whether that would be possible."""
        kafka = confluent_kafka()
        new = kafka.admin.NewTopic(self.sink.topic, num_partitions=self.sink.create, replication_factor=-1)

        def ask() -> Any:
            made = self.admin().create_topics([new], request_timeout=REACH_S, validate_only=only_check)
            return self._result(made[self.sink.topic])

        try:
            self._answered(ask, {"TOPIC_ALREADY_EXISTS"})
        except LookupError:
            return

    def limits(self) -> Limits:
        """The topic's current limits; partitions only if there is a single topic and they matter."""
        counted = self.sink.partition is not None or self.sink.partitioner == "round robin"
        count = self.partitions() if counted and self.sink.topic and not self.sink.topic_column else None
        return Limits(self.message_bytes(), count)

    def message_bytes(self) -> int:
        """The largest message: from the options, else the topic's limit, else Kafka's default."""
        if "max.request.size" in self.options:
            return int(self.options["max.request.size"])
        if self._message_bytes is None:
            self._message_bytes = self._topic_limit()
        return self._message_bytes

    def _topic_limit(self) -> int:
        from confluent_kafka import KafkaException

        if self.sink.topic is None:
            return DEFAULT_MESSAGE_BYTES
        kafka = confluent_kafka()
        asked = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, self.sink.topic)
        try:
            found = self.admin().describe_configs([asked], request_timeout=REACH_S)[asked]
            return int(self._result(found)["max.message.bytes"].value)
        except (KafkaException, KeyError, TimeoutError) as error:
            # Not every user may read a topic's settings; a message that is too large is refused later then.
            log.info("%s: its limit cannot be read: %s", self.sink.name, error)
            return DEFAULT_MESSAGE_BYTES

    # -- the marker --------------------------------------------------------------------------------

    def marker(self, timeout_s: float = REACH_S, *, settled: bool = True) -> Marker | None:
        """The marker, or None.

        With `settled`, waits for a transaction of the sink that is still open. Without it, the last committed
        marker counts, as long as no new producer has fenced the old one: that shows whose results there are.
        """
        kafka = confluent_kafka()
        settings = {
            **self.settings(),
            "group.id": self.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if settled else "read_uncommitted",
        }
        consumer = self.made(kafka.Consumer, settings)
        try:
            asked = [kafka.TopicPartition(self.sink.topic, 0)]
            deadline = time.monotonic() + timeout_s
            found = self._answered(lambda: consumer.committed(asked, timeout=timeout_s), until=deadline)[0]
            if found.error is not None:
                raise self.meaning_of(_client_error(found.error))
        finally:
            consumer.close()
        return Marker(found.metadata or "", found.offset - 1) if found.offset >= 0 else None

    def position(self, marker: Marker) -> tuple[str, str, int, str]:
        """The group of the marker, the topic, and the offset with its metadata."""
        assert self.sink.topic is not None
        # confluent-kafka reads metadata up to a zero, which it writes itself, but other clients do not.
        return self.group, self.sink.topic, marker.batch + 1, f"{marker.token}\0"

    def forget_marker(self) -> None:
        """Remove the marker, if there is one."""

        def ask() -> Any:
            gone = self.admin().delete_consumer_groups([self.group], request_timeout=REACH_S)
            return self._result(gone[self.group])

        try:
            self._answered(ask, {"GROUP_ID_NOT_FOUND"})
        except LookupError:
            return

    # -- errors ------------------------------------------------------------------------------------

    def _answered(self, ask: Any, absent: set[str] | None = None, until: float | None = None) -> Any:
        """The result of `ask`; raises `LookupError` for the errors in `absent`, ours for all others."""
        from confluent_kafka import KafkaException

        while True:
            try:
                return ask()
            except KafkaException as error:
                cause = error.args[0]
                if cause.name() in (absent or ()):
                    raise LookupError(cause.name()) from None
                # Some transient errors are not marked as such: a coordinator that is only just starting.
                passes = cause.retriable() or cause.name() in _AWAY
                if until is None or not passes or self.is_refused or time.monotonic() > until:
                    raise self.meaning_of(_client_error(cause)) from None
                time.sleep(0.2)
            except TimeoutError:
                raise self._unreachable("no answer") from None

    def _result(self, future: Any) -> Any:
        """The result of a request; does not wait if a broker refuses us: the client would keep trying."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + REACH_S + 5
        while not future.done() and time.monotonic() < until:
            self.admin().poll(_LOOK_S)  # otherwise the client does not report why it has no connection
            if self._refused is not None:
                raise KafkaException(self._refused)
        return future.result(0)

    def meaning_of(self, error: ClientError) -> DrivetrainError:
        """The user's error for a client's error; see the table at the end of this module."""
        if self._refused is not None and error.name in _AWAY:
            error = _client_error(self._refused)
        text = self.secrets.scrubbed(error.text)
        if error.name in _AWAY:
            return self._unreachable(text)
        if error.name in _NO_TOPIC:
            return self._no_topic()
        for names, what, remedy in _MEANINGS:
            if error.name in names:
                return OutputError(what, where=self.sink.name, got=text, remedy=remedy)
        kind = UnavailableError if error.passes or error.name in _LOST_PLACE else OutputError
        return kind("Kafka refuses what the sink asks", where=self.sink.name, got=f"{text} ({error.name})")

    def _unreachable(self, got: str) -> UnavailableError:
        return UnavailableError(
            "no Kafka broker answers",
            where=self.sink.name,
            expected=f"a broker at {self.sink.bootstrap}, and those that it names, within the time",
            got=got,
            remedy="start it, or correct bootstrap=; if it runs, look at advertised.listeners and "
            "security.protocol. The same command continues where it stopped",
        )

    def _no_topic(self) -> OutputError:
        return OutputError(
            "there is no such topic, or this user may not see it",
            where=self.sink.name,
            remedy="create it (kafka-topics.sh --create), or let the sink do it with create=PARTITIONS",
        )


def confluent_kafka() -> Any:
    """The client library; raises `MissingDependencyError` when it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingDependencyError(
            "Kafka sinks need the package confluent-kafka", remedy="pip install 'drivetrain[kafka]'"
        ) from error
    return confluent_kafka


def _client_error(error: Any) -> ClientError:
    """An error of confluent-kafka."""
    return ClientError(error.name(), error.str(), error.retriable(), error.retriable() or error.fatal())


_REFUSED = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "SslAuthenticationException")
_NO_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PARTITION")
_AWAY = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE",
    "_WAIT_COORD", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR", "LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "_DESTROY",
    "NOT_LEADER_OR_FOLLOWER", "DisconnectException",
)  # fmt: skip
_LOST_PLACE = (
    "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "IllegalStateException",
    "KafkaException",
)  # fmt: skip
"""A producer that does not know any more where it is; another one does."""
_PERMISSIONS = (
    "exactly once needs Write, Describe and Read on the topic; Write and Describe on transactional ids, and "
    "Read and Describe on groups, for names that begin with drivetrain.; create= needs Create, and --fresh "
    "Delete on groups"
)
_MEANINGS = (
    (
        _REFUSED,
        "the Kafka broker does not let this application in",
        "look at security.protocol, the sasl and the ssl settings in options (or kafka.options)",
    ),
    (
        (
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
        "this user may not do what the sink needs",
        _PERMISSIONS,
    ),
    (
        ("INVALID_TRANSACTION_TIMEOUT",),
        "the brokers do not allow transactions to last so long",
        "make transaction_timeout shorter, or raise transaction.max.timeout.ms on the brokers",
    ),
    (
        ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
        "a message is too large for the topic",
        "raise max.message.bytes of the topic, or make the messages smaller",
    ),
    (
        ("_UNKNOWN_PARTITION",),
        "a message names a partition that the topic does not have",
        "correct the column partition, or add partitions",
    ),
)
