"""The Kafka sink: messages to a topic, at least once or exactly once.

The problem: Spark may run a batch again after a crash, and messages sent to Kafka stay there. Spark's own
connector sends them again.

The design. *At least once*: that connector's tasks (`task_sender`), with the columns of `kafka_rows`.
*Exactly once*: a batch is written to files, and committed as one Kafka transaction that also contains the
batch's number, by one producer in the driver (`transactional_producer`; docs/decisions/0018 explains why only
one). `core.checkpoint.publication` decides what to do with a repeated batch.

    write            = stage → begin, send ┬──────────────────┬ commit → note "published" → discard the files
                                           └ note "begun" ────┘
    prepare, commit  = the same, with files that are durable and have a name between the two

What if we die here: before the transaction is committed, Kafka aborts it; when the sink is opened again, or
after transaction_timeout. Between the commit and the note, the marker in Kafka proves that it was committed.
A prepared batch is dropped only once it is known to be published; the next opening drops what is left. A
batch of `write` is computed again by Spark if we die, so its files need not survive that.

Invariants:

1. A read_committed reader sees a batch completely or not at all, once, whichever process is killed.
2. Every batch that Spark commits was published before.
3. A producer publishes only after it has fenced all others and the brokers have reported what was published.
4. The note "begun" is durable before the commit is sent.

Called by the engine. Source: Kafka's transactions; the two-phase commit of Apache Flink's Kafka sink.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.api.sinks import Guarantee
from drivetrain.config.catalog import kafka as keys
from drivetrain.config.references import resolved_options
from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.connectors.kafka.client_options import LINGER_MS, for_spark, sending
from drivetrain.connectors.kafka.kafka_rows import KafkaRows, refused
from drivetrain.connectors.kafka.target_topic import KafkaTarget
from drivetrain.connectors.kafka.task_sender import TaskSender
from drivetrain.connectors.kafka.transactional_producer import TransactionalProducer
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.core.checkpoint.publication import NONE, Marker, Publication, foreign
from drivetrain.errors import DrivetrainError, InternalError, OutputError, UnavailableError
from drivetrain.spark.session.spark_errors import recovered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

    from drivetrain.spark.connector.sink import SinkContext, SinkWriter

log = logging.getLogger("drivetrain.kafka")

_MARK_AGAIN_S = 3600.0
"""A younger marker has not expired: Kafka keeps them for a week by default."""
_BUFFER_BYTES = 32 * 2**20
_NOTING = ThreadPoolExecutor(thread_name_prefix="note of a Kafka sink")
"""Writes notes while messages are sent."""
_REALTIME_LINGER_MS = 0
"""In real-time mode, where messages come one by one. If they come faster than requests are answered, they are
sent together anyway: Kafka's client has at most five requests under way."""


def open_kafka(sink: KafkaSink, context: SinkContext) -> SinkWriter:
    """The writer of a Kafka sink; touches nothing before `validate`."""
    common: Mapping[str, str] = context.config[keys.OPTIONS] if context.config is not None else {}
    options = resolved_options({**common, **dict(sink.options)}, sink.name)
    target = KafkaTarget(sink, options, group=f"drivetrain.{context.app_id}.{context.sink_id}")
    if sink.guarantee == "exactly once":
        return ExactlyOnceKafka(target, context)
    return AtLeastOnceKafka(target, context)


class _KafkaWriter:
    def __init__(self, target: KafkaTarget, context: SinkContext) -> None:
        self._target = target
        self._sink = target.sink
        self._context = context
        self._created = self._sink.create is None
        self._made = KafkaRows(self._sink)

    def _rows(self, df: DataFrame, batch_id: int) -> DataFrame:
        if not self._created:
            self._target.create()
            self._created = True
        return self._made.made(df, self._target.limits(), batch_id)

    def meant(self, error: Exception) -> DrivetrainError | None:
        """The user's error for one of Spark's, if it is about Kafka."""
        text = f"{error}"
        return refused(text, self._sink) or recovered(text) or self._refused_by_kafka(text)

    def _refused_by_kafka(self, text: str) -> DrivetrainError | None:
        for signs, what, remedy in _JAVA:
            found = next((sign for sign in signs if sign in text), None)
            if found is not None:
                line = next(line for line in text.splitlines() if found in line)
                got = self._target.secrets.scrubbed(line.strip())[:300]
                kind = UnavailableError if found in _PASSING else OutputError
                return kind(what, where=self._sink.name, got=got, remedy=remedy)
        return None

    def _refuse_fresh(self) -> OutputError:
        return OutputError(
            "the topic has results of this application, which --fresh cannot delete",
            where=self._sink.name,
            remedy='to append all results again, set on_fresh="append" in the sink; to remove '
            "the old ones, delete the topic and create it again, or choose another",
        )


class AtLeastOnceKafka(_KafkaWriter):
    """Sends with Spark's connector, from Spark's tasks."""

    guarantee: Guarantee = "at least once"

    def __init__(self, target: KafkaTarget, context: SinkContext) -> None:
        super().__init__(target, context)
        self._written = Path(context.state_dir) / "written"
        self._sender: TaskSender | None = None

    def validate(self) -> None:
        """Raise unless the brokers answer and the topic exists, or may be created."""
        self._target.check()

    def check_fresh(self) -> None:
        """Raise `OutputError` when something was sent, unless the sink allows that."""
        if self._sink.on_fresh == "refuse" and self._written.exists():
            raise self._refuse_fresh()

    def fresh(self) -> None:
        """Delete the record that something was sent."""
        self._written.unlink(missing_ok=True)

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Send the rows of a batch and return their number; a repeated batch is sent again."""
        rows = self._rows(df, batch_id)
        self._note_written()
        if self._sender is None:
            self._sender = TaskSender(self._settings(), self._only_topic)
        try:
            return self._sender.send(rows)
        except Exception as error:
            meant = self.meant(error)
            if meant is None:
                raise
            raise meant from None

    def stream(self, df: DataFrame) -> DataStreamWriter:
        """The writer that sends the rows of a streaming `df` as they come; the caller starts it."""
        self._note_written()
        writer = self._rows(df, 0).writeStream.format("kafka").options(**self._settings(_REALTIME_LINGER_MS))
        return writer if self._only_topic is None else writer.option("topic", self._only_topic)

    def _note_written(self) -> None:
        if not self._written.exists():
            self._written.parent.mkdir(parents=True, exist_ok=True)
            self._written.touch()

    def _settings(self, linger_ms: int = LINGER_MS) -> dict[str, str]:
        limit = self._target.message_bytes()
        given = {
            **sending(limit, linger_ms),
            "max.request.size": str(limit),
            "buffer.memory": str(max(_BUFFER_BYTES, 2 * limit)),
            "max.block.ms": str(self._sink.timeout_ms),
            "delivery.timeout.ms": str(max(self._sink.timeout_ms, 31_000)),
            **self._target.options,
            "bootstrap.servers": self._sink.bootstrap,
        }
        return for_spark(given)

    @property
    def _only_topic(self) -> str | None:
        """The topic of all messages, if it is not a column."""
        return self._sink.topic if self._sink.topic_column is None else None


class ExactlyOnceKafka(_KafkaWriter):
    """Sends each batch as one transaction; a `TransactionalSinkWriter`."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, target: KafkaTarget, context: SinkContext) -> None:
        super().__init__(target, context)
        self._outbox = Outbox(context.state_dir, context.sink_id)
        self._producer = TransactionalProducer(target, target.group, context.config, context.app_id)
        self._known: Publication | None = None
        self._marked_s = 0.0

    # -- before anything runs ----------------------------------------------------------------------

    def validate(self) -> None:
        """Raise unless the topic exists, or may be created, and our results in it belong to this state."""
        self._target.check()
        marker, note = self._marker(), self._outbox.publication()
        if marker is not None and (note is None or note.token != marker.token):
            raise foreign(self._sink.name)

    def newest(self) -> int:
        """The newest batch of this state that is published; `NONE` if there is none."""
        if self._known is not None:
            return self._known.published
        note = self._outbox.publication()
        return NONE if note is None else note.newest(self._marker())

    def check_fresh(self) -> None:
        """Raise `OutputError` when something was published, unless the sink allows that."""
        if self._sink.on_fresh == "append":
            return
        marker, note = self._marker(), self._outbox.publication()
        published = max(marker.batch if marker else NONE, note.published if note else NONE)
        if published > NONE or (note is not None and note.begun is not None):
            raise self._refuse_fresh()

    def fresh(self) -> None:
        """Begin a new publication, whose results come after the existing ones."""
        # The marker in Kafka last: while it exists, a lost state is detected.
        self._outbox.forget()
        self._known = None
        self._target.forget_marker()

    def _marker(self) -> Marker | None:
        if self._target.partitions() is None:
            return None  # the topic will be created
        return self._target.marker(settled=False)

    # -- batches -----------------------------------------------------------------------------------

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch as one transaction; 0 if it was published before."""
        if self._is_published(batch_id):
            return 0
        staged = self._staged(df, batch_id, kept=False)
        try:
            if not staged.rows:
                return 0  # nothing to publish, and the same again after a crash
            known = self._opened()
            if batch_id <= known.published:
                return 0
            for before in self._outbox.batches():
                if before <= batch_id:  # the same batch; or one of a life that a replay has ended
                    self._outbox.drop(before)
            self._publish(staged, known)
        finally:
            self._outbox.discard(staged)
        return staged.rows

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch durably until they are committed or aborted; returns their number."""
        if self._is_published(batch_id):
            return 0
        staged = self._staged(df, batch_id, kept=True)
        self._outbox.prepare(staged)
        return staged.rows

    def prepared(self) -> list[int]:
        """The batches that wait to be committed, in increasing order."""
        return self._outbox.batches()

    def commit(self, batch_id: int) -> int:
        """Publish a prepared batch as one transaction; 0 if it was published before."""
        known = self._opened()
        batch = self._outbox.prepared(batch_id)
        if batch_id <= known.published:
            self._outbox.drop(batch_id)
            return 0
        if batch is None:
            raise InternalError(f"batch {batch_id} is committed, and was not prepared", where=self._sink.name)
        earlier = [id for id in self._outbox.batches() if known.published < id < batch_id]
        if earlier:
            raise InternalError(f"batch {batch_id} is committed before {earlier[0]}", where=self._sink.name)
        if batch.rows:
            self._publish(batch, known)
        self._outbox.drop(batch_id)
        return batch.rows

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch that was not published."""
        if batch_id <= self._opened().published:
            raise InternalError(f"batch {batch_id} is aborted, and is published", where=self._sink.name)
        self._outbox.drop(batch_id)

    # -- implementation ----------------------------------------------------------------------------

    def _is_published(self, batch_id: int) -> bool:
        """Whether it is, as far as known without asking the brokers; `commit` asks them."""
        known = self._known or self._outbox.publication()
        return known is not None and batch_id <= known.published

    def _staged(self, df: DataFrame, batch_id: int, *, kept: bool) -> PreparedBatch:
        rows = self._rows(df, batch_id)
        try:
            return self._outbox.stage(rows, batch_id, kept=kept)
        except Exception as error:
            if isinstance(error, DrivetrainError):
                raise
            meant = self.meant(error)
            if meant is None:
                raise
            raise meant from None

    def _opened(self) -> Publication:
        """The published state; takes over from an earlier producer if it is not known."""
        if self._known is not None and self._producer.is_open:
            return self._known
        note = self._outbox.begin()
        marker = self._producer.open()
        try:
            known = note.resolved(marker, self._sink.name, str(self._outbox.note))
            if known != note:
                self._outbox.keep(known)
            if marker is None or marker.batch < known.published:
                self._mark(known)
        except BaseException:
            self._producer.close()
            raise
        self._known, self._marked_s = known, time.monotonic()
        for batch_id in self._outbox.batches():
            if batch_id <= known.published:
                self._outbox.drop(batch_id)
        log.info("%s: published up to batch %s", self._sink.name, known.published)
        return known

    def _mark(self, known: Publication) -> None:
        """Leave a marker in a transaction without messages."""
        self._producer.publish([], Marker(known.token, known.published))

    def _publish(self, batch: PreparedBatch, known: Publication) -> None:
        if time.monotonic() - self._marked_s > _MARK_AGAIN_S:
            self._mark(known)
        begun = known.began(batch.batch)
        self._known = None  # until the transaction has ended, only the brokers know
        marker = Marker(begun.token, batch.batch)
        noting = _NOTING.submit(self._outbox.keep, begun)
        try:
            sent = self._producer.publish(self._outbox.files(batch), marker, noting.result)
        except ClientError:
            for _ in self._outbox.messages_to_publish(batch, "published"):
                pass  # it raises what is wrong with the files
            raise
        finally:
            wait([noting])  # no note of this batch is written after another one's
        if sent != batch.rows:
            raise InternalError(f"{sent} messages were sent of {batch.rows}", where=self._sink.name)
        self._known = begun.committed(batch.batch)
        self._marked_s = time.monotonic()
        self._outbox.keep(self._known)


_PASSING = ("TimeoutException", "NotLeaderOrFollowerException", "NetworkException", "DisconnectException")
_JAVA = (
    (
        ("RecordTooLargeException",),
        "a message is too large for the topic",
        "raise max.message.bytes of the topic, or make the messages smaller",
    ),
    (
        ("SaslAuthenticationException", "SslAuthenticationException"),
        "the Kafka broker does not let this application in",
        "look at security.protocol, the sasl and the ssl settings in options (or kafka.options)",
    ),
    (
        ("TopicAuthorizationException", "ClusterAuthorizationException"),
        "this user may not write to the topic",
        "give it Write and Describe on the topic",
    ),
    (
        ("UnknownTopicOrPartitionException", "not present in metadata"),
        "there is no such topic or partition, or this user may not see it",
        "create it, or correct topic= and the columns that name topic or partition",
    ),
    (
        _PASSING,
        "the Kafka brokers did not take the messages in time",
        "check that they run; the same command continues where it stopped, and sends the batch again",
    ),
)
"""Errors of Java's client, in order: a signature in Spark's report, the meaning, the remedy."""
