"""Sends a batch and its marker to Kafka as one transaction.

The problem: thousands of messages on several partitions must become visible together, at most once, whichever
process dies; a process that was replaced must not send any more; and a broker that is away for a while is no
reason to fail.

The design: one transactional producer in the driver. Its transactional id is the sink's, so opening it fences
an earlier producer and ends its transaction; only then is the marker read, because only then can it not
change. A batch is: begin, produce, the marker's offset, commit. Errors fall into three classes:

- brokers that were away: the transaction is aborted and tried again as a whole, until the time is over. If
  it cannot even be aborted, the producer is closed and opened again: that ends the transaction, and the
  marker shows whether it was committed;
- messages that Kafka does not accept: the transaction is aborted, and the error raised;
- another process took over: the producer is closed, and the error raised.

Invariants:

1. After `publish` returns, the batch and its marker are committed.
2. After it raises, the producer is closed; the next `open` finds out whether the batch is committed.
3. At most one queue of messages is in memory: `QUEUE_BYTES`, or two of the largest messages.
4. No call to the client exceeds its time by more than `_GRACE_S`, so `publish` ends.

Called by the Kafka sink. Source: Kafka's transactions (KIP-98, KIP-447).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from drivetrain.connectors.kafka.target_topic import KafkaTarget, confluent_kafka
from drivetrain.core.checkpoint.publication import Marker, foreign
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError

QUEUE_BYTES = 64 * 2**20
CHUNK_ROWS = 5000
"""Rows that are converted to Python objects at the same time."""
_SLICE_S = 5.0
_GRACE_S = 5.0
_PAUSE_S = 0.05
_ABORT_S = 15.0
"""How long to try to end a transaction before the producer is closed: opening a new one ends it as well."""
_FENCED = (
    "_FENCED",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "FENCED_INSTANCE_ID",
    "INVALID_PRODUCER_ID_MAPPING",
)


class TransactionalProducer:
    """The producer of one sink; `open` first, and again after an error."""

    def __init__(self, target: KafkaTarget, transactional_id: str) -> None:
        self._target = target
        self._sink = target.sink
        self._id = transactional_id
        self._producer: Any = None
        self._group: Any = None
        self._refusal: tuple[Any, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can publish."""
        return self._producer is not None

    def open(self) -> Marker | None:
        """Take over from an earlier publisher; returns the marker after that."""
        self._target.try_again()
        return self._open(self._deadline())

    def _open(self, deadline: float) -> Marker | None:
        limit = self._target.message_bytes()
        settings = {
            "linger.ms": 5,
            "compression.type": "none",
            # A client that bootstraps again when all brokers are away loses its coordinators with them
            # (librdkafka 2.16), so it waits for those it knows. A new client bootstraps anyway.
            "metadata.recovery.strategy": "none",
            **self._target.settings(),
            "transactional.id": self._id,
            "transaction.timeout.ms": self._sink.transaction_timeout_ms,
            "partitioner": "murmur2_random",  # as in Kafka's own clients
            "message.max.bytes": limit,
            "queue.buffering.max.kbytes": max(QUEUE_BYTES, 2 * limit) // 1024,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "on_delivery": self._note_refusal,
        }
        self._producer = self._target.made(confluent_kafka().Producer, settings)
        try:
            self._retried(self._producer.init_transactions, deadline)
            marker, self._group = self._target.marker(max(1.0, deadline - time.monotonic()))
        except confluent_kafka().KafkaException as error:
            self.close()
            raise self._target.meaning_of(error.args[0]) from None
        except BaseException:
            self.close()
            raise
        return marker

    def publish(self, batches: Callable[[], Iterable[Any]], marker: Marker) -> int:
        """Send the messages, Arrow batches of `kafka_rows`, with the marker; returns their number.

        `batches` is called again for another try.
        """
        deadline, rows = self._deadline(), 0
        self._target.try_again()
        while True:
            began_s = time.monotonic()
            self._refusal = None
            try:
                self._producer.begin_transaction()
                rows = self._send(batches(), deadline)
                self._retried(lambda wait_s: self._send_marker(marker, wait_s), deadline)
                maybe_crash(CrashPoint.IN_TRANSACTION)
                self._retried(self._producer.commit_transaction, deadline)
                maybe_crash(CrashPoint.AFTER_TRANSACTION)
            except confluent_kafka().KafkaException as error:
                self._give_up(error.args[0], began_s, deadline)
            except BaseException:
                self.close()
                raise
            else:
                return rows
            if not self.is_open and self._was_committed(marker, deadline):
                return rows

    def close(self) -> None:
        """Release the producer: an open transaction ends by its timeout, or with the next `open`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(in_queue=True, in_flight=True, blocking=False)

    # -- implementation ----------------------------------------------------------------------------

    def _send(self, batches: Iterable[Any], deadline: float) -> int:
        produce, rows = self._producer.produce, 0
        for batch in batches:
            names = batch.schema.names
            plain = not {"headers", "topic", "partition"} & set(names)
            for start in range(0, batch.num_rows, CHUNK_ROWS):
                chunk = batch.slice(start, CHUNK_ROWS)
                columns = {
                    name: chunk.column(name).to_pylist() for name in names if not name.startswith("__")
                }
                rows += chunk.num_rows
                if plain:
                    for key, value in zip(columns["key"], columns["value"], strict=True):
                        try:
                            produce(self._sink.topic, value, key)
                        except BufferError:
                            self._again(deadline, self._sink.topic, value, key)
                else:
                    self._send_routed(columns, chunk.num_rows, deadline)
                self._producer.poll(0)
        return rows

    def _send_routed(self, columns: dict[str, list[Any]], rows: int, deadline: float) -> None:
        nothing: list[Any] = [None] * rows
        topics = columns.get("topic", nothing)
        partitions, headers = columns.get("partition", nothing), columns.get("headers", nothing)
        for i, (key, value) in enumerate(zip(columns["key"], columns["value"], strict=True)):
            options = {"headers": [(h["key"], h["value"]) for h in headers[i]]} if headers[i] else {}
            partition = -1 if partitions[i] is None else partitions[i]
            topic = topics[i] or self._sink.topic
            try:
                self._producer.produce(topic, value, key, partition, **options)
            except BufferError:
                self._again(deadline, topic, value, key, partition, **options)

    def _again(self, deadline: float, *message: Any, **options: Any) -> None:
        """Produce when the queue has space again; a queue that stays full means that a broker is away."""
        while True:
            self._producer.poll(0.1)
            try:
                self._producer.produce(*message, **options)
            except BufferError:
                if time.monotonic() > deadline:
                    kafka = confluent_kafka()
                    raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT)) from None
            else:
                return

    def _note_refusal(self, error: Any, message: Any) -> None:
        if (
            error is not None
            and self._refusal is None
            and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
        ):
            key = (message.key() or b"")[:64].decode("latin-1")
            self._refusal = (error, f"topic {message.topic()}, key {key!r}")

    def _send_marker(self, marker: Marker, wait_s: float) -> None:
        """Put the marker into the transaction; raises when the client's call does not return.

        It may never return when the group's coordinator went away: librdkafka#5456 and #5511.
        """
        sent: Future[None] = Future()
        send, position = self._producer.send_offsets_to_transaction, self._target.position(marker)

        def work() -> None:
            try:
                sent.set_result(send([position], self._group, wait_s))
            except Exception as error:  # noqa: BLE001 - raised to the caller
                sent.set_exception(error)

        # A thread that does not return cannot be ended; one that is left running is fenced.
        threading.Thread(target=work, name="kafka-marker", daemon=True).start()
        try:
            sent.result(wait_s + _GRACE_S)
        except TimeoutError:
            kafka = confluent_kafka()
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT)) from None

    def _give_up(self, error: Any, began_s: float, deadline: float) -> None:
        """End the transaction, or else close the producer; raises errors that another try cannot solve."""
        lasted_s = time.monotonic() - began_s
        cause, place = self._refusal or (error, "")
        meaning = self._target.meaning_of(cause)
        if place and isinstance(meaning, OutputError):
            meaning.got = f"{meaning.got or cause.name()} ({place})"
        if error.fatal():
            self.close()  # this producer cannot be used any more
        elif error.name() not in _FENCED:
            try:
                self._retried(self._producer.abort_transaction, min(deadline, time.monotonic() + _ABORT_S))
            except confluent_kafka().KafkaException as later:
                self.close()
                error = later.args[0]
        if error.name() in _FENCED:
            self.close()
            raise self._fenced(error, lasted_s) from None
        if isinstance(meaning, OutputError) or time.monotonic() > deadline:
            self.close()
            raise meaning from None

    def _was_committed(self, marker: Marker, deadline: float) -> bool:
        """Open again, which ends an open transaction, and ask the brokers for the marker."""
        while True:
            try:
                found = self._open(deadline)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
            else:
                break
        if found is not None and found.token != marker.token:
            self.close()
            raise foreign(self._sink.name)
        return found is not None and found.batch >= marker.batch

    def _fenced(self, error: Any, lasted_s: float) -> DrivetrainError:
        if lasted_s * 1000 >= self._sink.transaction_timeout_ms:
            return OutputError(
                "sending a batch took longer than its transaction may last",
                where=self._sink.name,
                expected=f"at most {self._sink.transaction_timeout_ms / 1000:g} s (transaction_timeout)",
                got=f"{lasted_s:.0f} s",
                remedy="raise transaction_timeout= of the sink (above 15 min also transaction.max.timeout.ms "
                "of the brokers), or make batches smaller with run.max-batch-bytes",
            )
        return OutputError(
            "another process has taken over this sink",
            where=self._sink.name,
            expected=f"to be the only publisher with the id {self._id}",
            got=f"{self._target.secrets.scrubbed(error.str())}; this process published nothing of the batch",
            remedy="end one of the two: the same application with the same settings runs twice, perhaps on "
            "another machine or with another state directory",
        )

    def _retried(self, call: Callable[[float], Any], deadline: float) -> Any:
        """Call again while the error is transient, until the time is over."""
        kafka = confluent_kafka()
        while True:
            left_s = deadline - time.monotonic()
            try:
                return call(min(_SLICE_S, max(left_s, 0.1)))
            except kafka.KafkaException as error:
                cause = error.args[0]
                stuck = cause.name() == "_CONFLICT"  # with a call that has not returned
                if stuck or not cause.retriable() or left_s <= 0 or self._target.is_refused:
                    raise
                time.sleep(min(_PAUSE_S, max(left_s, 0.0)))

    def _deadline(self) -> float:
        return time.monotonic() + self._sink.timeout_ms / 1000
