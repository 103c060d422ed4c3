"""What a Kafka sink asks of the brokers besides sending: is the topic there, what does it take, who
published.

The problem: a sink that cannot work must be told before anything runs, within seconds, and with what to do
about it. Kafka's client waits, retries and then says "timed out", whatever the reason was.

The design: an administration client with bounded times. What it or a producer says is translated here, in one
place, into who must act: the user (`OutputError`) or nobody yet (`UnavailableError`). The reason why a broker
did not answer (a refused login, a certificate) reaches the client on another way, `note_error`, and is told
instead of the time that passed.

The marker of `core.checkpoint.publication` is an offset of a consumer group of the sink's own, on partition 0
of its topic: batch n is offset n + 1, and the token is the offset's metadata. It can be written in a
transaction, which is what Kafka has transactional offsets for; nobody consumes under that name.

Invariants:

1. Nothing here changes the topic, but `create` when it is asked for.
2. No call takes longer than its time; no error carries a secret.

Called by the Kafka sink's writers and its producer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from drivetrain.api.kafka_sink import KafkaSink
from drivetrain.connectors.kafka.client_options import Secrets, for_librdkafka
from drivetrain.connectors.kafka.kafka_rows import Limits
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.errors import DrivetrainError, MissingDependencyError, OutputError, UnavailableError

log = logging.getLogger("drivetrain.kafka")
_client_log = logging.getLogger("drivetrain.kafka.client")
_client_log.addHandler(logging.NullHandler())
"""Where the client library logs, for whoever listens; what matters of it arrives as an error."""

REACH_S = 20.0
"""How long a broker may take to answer a question before anything has started."""
_LOOK_S = 0.2
DEFAULT_MESSAGE_BYTES = 1_048_588
"""Kafka's own default of max.message.bytes, where the topic's may not be read."""


class KafkaTarget:
    """The topic of one sink; opens a connection when it is first asked. `group` keeps the sink's marker."""

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
        """What every client of librdkafka is made with; raises `OutputError` for options it does not know."""
        return {
            "bootstrap.servers": self.sink.bootstrap,
            "error_cb": self.note_error,
            "logger": _client_log,
            "reconnect.backoff.max.ms": 1000,
            **for_librdkafka(self.options, self.sink.name),
        }

    def made(self, client: Any, settings: Mapping[str, Any]) -> Any:
        """A client with these settings; raises `OutputError` when it does not take them."""
        from confluent_kafka import KafkaException

        try:
            return client(dict(settings))
        except (KafkaException, ValueError, TypeError) as error:
            raise OutputError(
                "Kafka's client refuses the options of the sink",
                where=self.sink.name,
                got=self.secrets.scrubbed(str(error)),
                remedy="correct the options: producer settings under Kafka's own names",
            ) from None

    def note_error(self, error: Any) -> None:
        """What a client says beside its calls; a refused login is kept as the reason for what follows."""
        log.info("%s: %s", self.sink.name, self.secrets.scrubbed(str(error)))
        if error.name() in _REFUSED:
            self._refused = error

    def try_again(self) -> None:
        """Forget what a broker refused before: a login may be allowed by now."""
        self._refused = None

    @property
    def is_refused(self) -> bool:
        """Whether a broker refused to let us in: waiting does not help then."""
        return self._refused is not None

    def admin(self) -> Any:
        """The administration client."""
        if self._admin is None:
            self._admin = self.made(confluent_kafka().admin.AdminClient, self.settings())
        return self._admin

    # -- questions ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise unless the brokers answer and the topic is there, or may be created."""
        if self.sink.topic is None:
            self._asked(lambda: self.admin().list_topics(timeout=REACH_S))
        elif self.partitions() is None:
            if self.sink.create is None:
                raise self._no_topic()
            self.create(only_check=True)

    def partitions(self) -> int | None:
        """How many partitions the topic has; None when it is not there."""
        kafka = confluent_kafka()
        assert self.sink.topic is not None
        topics = kafka.TopicCollection([self.sink.topic])

        def ask() -> Any:
            found = self.admin().describe_topics(topics, request_timeout=REACH_S)
            return self._result(found[self.sink.topic])

        try:
            return len(self._asked(ask, {"UNKNOWN_TOPIC_OR_PART"}).partitions)
        except LookupError:
            return None

    def create(self, *, only_check: bool = False) -> None:
        """Create the topic unless it is there; with `only_check` ask whether that would be possible."""
        kafka = confluent_kafka()
        new = kafka.admin.NewTopic(self.sink.topic, num_partitions=self.sink.create, replication_factor=-1)

        def ask() -> Any:
            made = self.admin().create_topics([new], request_timeout=REACH_S, validate_only=only_check)
            return self._result(made[self.sink.topic])

        try:
            self._asked(ask, {"TOPIC_ALREADY_EXISTS"})
        except LookupError:
            return

    def limits(self) -> Limits:
        """What the topic takes now; the partitions only where one topic is all there is and they matter."""
        counted = self.sink.partition is not None or self.sink.partitioner == "round robin"
        count = self.partitions() if counted and self.sink.topic and not self.sink.topic_column else None
        return Limits(self.message_bytes(), count)

    def message_bytes(self) -> int:
        """The largest message: what the options say, else the topic's limit, else Kafka's default."""
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
            # Not everybody may read a topic's settings; a message that is too large is refused later then.
            log.info("%s: its limit cannot be read: %s", self.sink.name, error)
            return DEFAULT_MESSAGE_BYTES

    # -- the marker --------------------------------------------------------------------------------

    def marker(self, timeout_s: float = REACH_S, *, settled: bool = True) -> tuple[Marker | None, Any]:
        """The marker, and the group as a producer takes it.

        With `settled` a transaction of the sink that is still open is waited for; without, as long as nobody
        has fenced who began it, what was committed before counts: that tells whose results there are.
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
            found = self._asked(lambda: consumer.committed(asked, timeout=timeout_s), until=deadline)[0]
            if found.error is not None:
                raise self.meaning_of(found.error)
            group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        if found.offset < 0:
            return None, group
        return Marker(found.metadata or "", found.offset - 1), group

    def position(self, marker: Marker) -> Any:
        """The marker as an offset."""
        return confluent_kafka().TopicPartition(self.sink.topic, 0, marker.batch + 1, marker.token)

    def forget_marker(self) -> None:
        """Remove the marker, if there is one."""

        def ask() -> Any:
            gone = self.admin().delete_consumer_groups([self.group], request_timeout=REACH_S)
            return self._result(gone[self.group])

        try:
            self._asked(ask, {"GROUP_ID_NOT_FOUND"})
        except LookupError:
            return

    # -- errors ------------------------------------------------------------------------------------

    def _asked(self, ask: Any, absent: set[str] | None = None, until: float | None = None) -> Any:
        """What `ask` returns; `LookupError` for the errors in `absent`, ours for all others."""
        from confluent_kafka import KafkaException

        while True:
            try:
                return ask()
            except KafkaException as error:
                told = error.args[0]
                if told.name() in (absent or ()):
                    raise LookupError(told.name()) from None
                # Some errors that pass do not say so: a coordinator that is only just being made.
                passes = told.retriable() or told.name() in _AWAY
                if until is None or not passes or self.is_refused or time.monotonic() > until:
                    raise self.meaning_of(told) from None
                time.sleep(0.2)
            except TimeoutError:
                raise self._unreachable("no answer") from None

    def _result(self, future: Any) -> Any:
        """What a question gives; not waited for when a broker does not let us in: the client would try on."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + REACH_S + 5
        while not future.done() and time.monotonic() < until:
            self.admin().poll(_LOOK_S)  # else the client does not say why it has no connection
            if self._refused is not None:
                raise KafkaException(self._refused)
        return future.result(0)

    def meaning_of(self, error: Any) -> DrivetrainError:
        """What a client's error means for the user; see the table at the end of this module."""
        if self._refused is not None and error.name() in _AWAY:
            error = self._refused
        name, text = error.name(), self.secrets.scrubbed(error.str())
        if name in _AWAY:
            return self._unreachable(text)
        if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return self._no_topic()
        for names, what, remedy in _MEANINGS:
            if name in names:
                return OutputError(what, where=self.sink.name, got=text, remedy=remedy)
        kind = UnavailableError if error.retriable() or error.fatal() else OutputError
        return kind("Kafka refuses what the sink asks", where=self.sink.name, got=f"{text} ({name})")

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


_REFUSED = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED")
_AWAY = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_RESOLVE",
    "_WAIT_COORD", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR", "LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "_DESTROY",
)  # fmt: skip
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
        ("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE"),
        "a message is too large for the topic",
        "raise max.message.bytes of the topic, or make the messages smaller",
    ),
    (
        ("_UNKNOWN_PARTITION",),
        "a message names a partition that the topic does not have",
        "correct the column partition, or add partitions",
    ),
)
