"""Sending a batch and its marker to Kafka as one transaction.

The problem: thousands of messages on several partitions must become visible together, at most once,
whatever dies; a process that lost its place must not send any more; and a broker that is away for a while
is no reason to fail.

The design: one transactional producer in the driver. Its transactional id is the sink's, so that opening it
fences whoever had it before and ends what that had begun; only then is the marker read, and only then is
the marker the truth. A batch is: begin, produce, the marker's offset, commit. What goes wrong falls in
three classes:

- the transaction is given up and tried again as a whole, until the time is over: brokers that were away;
- it is given up, and the error told: messages that Kafka does not take;
- nobody knows how it ended, or another process took over: the producer is closed, and the next `open` finds
  out.

Invariants:

1. After `publish` returns, the batch and its marker are committed.
2. After it raises, the producer is closed; whether the batch is committed is known to the next `open`.
3. At most one queue of messages is in memory, `QUEUE_BYTES` or two of the largest.

Called by the Kafka sink. Source: Kafka's transactions (KIP-98, KIP-447).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from drivetrain.core.publication import Marker
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.spark.sinks.kafka_target import KafkaTarget, confluent_kafka

QUEUE_BYTES = 64 * 2**20
CHUNK_ROWS = 5000
"""Rows that are Python objects at the same time."""
_SLICE_S = 5.0
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
        """Take over from whoever published here before; what the marker says then."""
        deadline = self._deadline()
        self._target.try_again()
        limit = self._target.message_bytes()
        settings = {
            "linger.ms": 5,
            "compression.type": "none",
            **self._target.settings(),
            "transactional.id": self._id,
            "transaction.timeout.ms": self._sink.transaction_timeout_ms,
            "partitioner": "murmur2_random",  # what Kafka's own clients do
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
            raise self._target.told(error.args[0]) from None
        except BaseException:
            self.close()
            raise
        return marker

    def publish(self, batches: Callable[[], Iterable[Any]], marker: Marker) -> int:
        """Send the messages, Arrow batches of `kafka_rows`, and the marker with them; how many they were.

        `batches` is called again for another try.
        """
        deadline = self._deadline()
        self._target.try_again()
        while True:
            began_s = time.monotonic()
            self._refusal = None
            try:
                self._producer.begin_transaction()
                rows = self._send(batches(), deadline)
                self._retried(
                    lambda wait_s: self._producer.send_offsets_to_transaction(
                        [self._target.position(marker)], self._group, wait_s
                    ),
                    deadline,
                )
                self._retried(self._producer.commit_transaction, deadline)
            except confluent_kafka().KafkaException as error:
                self._give_up(error.args[0], began_s, deadline)
            except BaseException:
                self.close()
                raise
            else:
                return rows

    def close(self) -> None:
        """Let go of the producer: a transaction that is open ends by its timeout, or with the next `open`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge(in_queue=True, in_flight=True, blocking=False)

    # -- how ---------------------------------------------------------------------------------------

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
            told = {"headers": [(h["key"], h["value"]) for h in headers[i]]} if headers[i] else {}
            partition = -1 if partitions[i] is None else partitions[i]
            topic = topics[i] or self._sink.topic
            try:
                self._producer.produce(topic, value, key, partition, **told)
            except BufferError:
                self._again(deadline, topic, value, key, partition, **told)

    def _again(self, deadline: float, *message: Any, **told: Any) -> None:
        """Produce when the queue has room again; a queue that never has is a broker that is away."""
        while True:
            self._producer.poll(0.1)
            try:
                self._producer.produce(*message, **told)
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

    def _give_up(self, error: Any, began_s: float, deadline: float) -> None:
        """End the transaction; returns when it may be tried again, else closes the producer and raises."""
        kafka = confluent_kafka()
        lasted_s = time.monotonic() - began_s
        if error.name() in _FENCED or error.fatal():
            self.close()
            raise self._fenced(error, lasted_s) from None
        cause, place = self._refusal or (error, "")
        told = self._target.told(cause)
        if place and isinstance(told, OutputError):
            told.got = f"{told.got or cause.name()} ({place})"
        try:
            self._retried(self._producer.abort_transaction, deadline)
        except kafka.KafkaException as later:
            self.close()
            fenced = later.args[0].name() in _FENCED
            raise (self._fenced(later.args[0], lasted_s) if fenced else told) from None
        if isinstance(told, OutputError) or time.monotonic() > deadline:
            self.close()
            raise told from None

    def _fenced(self, error: Any, lasted_s: float) -> DrivetrainError:
        if error.name() not in _FENCED:
            return self._target.told(error)
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
            expected=f"to be the only one that publishes as {self._id}",
            got=f"{self._target.secrets.scrubbed(error.str())}; from here nothing of the batch was published",
            remedy="end one of the two: the same application with the same settings runs twice, perhaps on "
            "another machine or with another state directory",
        )

    def _retried(self, call: Callable[[float], Any], deadline: float) -> Any:
        """Call again while the error is one that passes, until the time is over."""
        kafka = confluent_kafka()
        while True:
            left_s = deadline - time.monotonic()
            try:
                return call(min(_SLICE_S, max(left_s, 0.1)))
            except kafka.KafkaException as error:
                if not error.args[0].retriable() or left_s <= 0 or self._target.is_refused:
                    raise

    def _deadline(self) -> float:
        return time.monotonic() + self._sink.timeout_ms / 1000
