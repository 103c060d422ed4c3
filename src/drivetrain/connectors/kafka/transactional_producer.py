"""Sends a batch and its marker to Kafka as one transaction.

The problem: thousands of messages on several partitions must become visible together, at most once, whichever
process dies; a process that was replaced must not send any more; and a broker that is away for a while is no
reason to fail.

The design: one transactional producer in the driver, of Kafka's Java client (`java_producer`). Its
transactional id is the sink's, so opening it fences an earlier producer and ends its transaction; only then
is the marker read, because only then can it not change. A batch is: begin, the files of its messages, the
marker's offset, commit. What must be on disk before the commit may be written while messages are sent. Errors
fall into three classes:

- brokers that were away: the transaction is aborted and tried again as a whole, until the time is over. If
  it cannot even be aborted, the producer is closed and opened again: that ends the transaction, and the
  marker shows whether it was committed;
- messages that Kafka does not accept: the transaction is aborted, and the error raised;
- another process took over: the producer is closed, and the error raised.

Invariants:

1. After `publish` returns, the batch and its marker are committed.
2. After it raises, the producer is closed; the next `open` finds out whether the batch is committed.
3. In memory are a segment, and at most one queue of messages: `QUEUE_BYTES`, or two of the largest messages.
4. `publish` and `open` end: a call that outlasts the time by `_GRACE_S` fails, as the producer is closed.
5. No commit is sent before `before_commit` has returned.

Called by the Kafka sink. Source: Kafka's transactions (KIP-98, KIP-447).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.connectors.kafka.client_options import sending
from drivetrain.connectors.kafka.java_producer import DAMAGED, JavaProducer
from drivetrain.connectors.kafka.target_topic import KafkaTarget
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Marker, foreign
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError

if TYPE_CHECKING:
    from drivetrain.config import Config

QUEUE_BYTES = 64 * 2**20
_GRACE_S = 5.0
_PAUSE_S = 0.05
_ABORT_S = 15.0
"""How long to try to end a transaction before the producer is closed: opening a new one ends it as well."""
_REQUEST_MS = 30_000
"""Kafka's own request.timeout.ms."""
_FENCED = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "FENCED_INSTANCE_ID",
    "INVALID_PRODUCER_ID_MAPPING",
)


def _nothing() -> None:
    """Nothing has to be done before a commit."""


class TransactionalProducer:
    """The producer of one sink; `open` first, and again after an error."""

    def __init__(
        self, target: KafkaTarget, transactional_id: str, config: Config | None, application: str
    ) -> None:
        self._target = target
        self._sink = target.sink
        self._id = transactional_id
        self._config = config
        self._application = application
        self._producer: Any = None
        self._is_late = False

    @property
    def is_open(self) -> bool:
        """Whether it can publish."""
        return self._producer is not None

    def open(self) -> Marker | None:
        """Take over from an earlier publisher; returns the marker after that."""
        self._target.try_again()
        return self._open(self._deadline())

    def _open(self, deadline: float) -> Marker | None:
        try:
            self._producer = self._connected()
            with self._ending_at(deadline):
                self._retried(self._producer.init, deadline)
            marker = self._target.marker(max(1.0, deadline - time.monotonic()))
        except ClientError as error:
            self.close()
            raise self._target.meaning_of(error) from None
        except BaseException:
            self.close()
            raise
        return marker

    def _connected(self) -> JavaProducer:
        limit, given = self._target.message_bytes(), self._target.options
        defaults = {
            **sending(limit),
            "request.timeout.ms": str(_REQUEST_MS),
            "buffer.memory": str(max(QUEUE_BYTES, 2 * limit)),
            "reconnect.backoff.max.ms": "1000",
        }
        chosen = defaults | given
        # Messages that arrive after the transaction has timed out are of no use. The client refuses less than
        # one request may take.
        least_ms = int(chosen["request.timeout.ms"]) + int(chosen["linger.ms"])
        delivery_ms = max(min(self._sink.timeout_ms, self._sink.transaction_timeout_ms), least_ms)
        settings = {
            **chosen,
            "bootstrap.servers": self._sink.bootstrap,
            "transactional.id": self._id,
            "transaction.timeout.ms": str(self._sink.transaction_timeout_ms),
            "max.request.size": str(limit),
            "max.block.ms": str(max(self._sink.timeout_ms, 1000)),
            "delivery.timeout.ms": str(delivery_ms),
        }
        try:
            return JavaProducer(self._config, self._application, settings, self._sink.topic)
        except ClientError as error:
            raise self._target.refused_options(error.text) from None

    def publish(
        self, files: Sequence[Segment], marker: Marker, before_commit: Callable[[], object] = _nothing
    ) -> int:
        """Send the messages of the files, with absolute paths, and the marker; returns their number.

        `before_commit` is called before each try to commit, and may raise. Raises `ClientError` with the name
        `DAMAGED` for a file that is not as it was written.
        """
        deadline, rows = self._deadline(), 0
        self._target.try_again()
        while True:
            began_s = time.monotonic()
            try:
                with self._ending_at(deadline):
                    self._producer.begin()
                    rows = sum(map(self._producer.send, files))
                    self._retried(lambda: self._send_marker(marker), deadline)
                    before_commit()
                    maybe_crash(CrashPoint.IN_TRANSACTION)
                    self._retried(self._producer.commit, deadline)
                maybe_crash(CrashPoint.AFTER_TRANSACTION)
            except ClientError as error:
                if error.name == DAMAGED:
                    self.close()
                    raise
                self._give_up(error, began_s, deadline)
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
            producer.close()

    # -- implementation ----------------------------------------------------------------------------

    def _send_marker(self, marker: Marker) -> None:
        self._producer.mark(*self._target.position(marker))

    def _give_up(self, error: ClientError, began_s: float, deadline: float) -> None:
        """End the transaction, or else close the producer; raises errors that another try cannot solve."""
        lasted_s = time.monotonic() - began_s
        if self._is_late:
            error = ClientError("REQUEST_TIMED_OUT", "a call did not return in time", passes=True)
        cause, place = self._producer.refusal() or (error, "")
        meaning = self._target.meaning_of(cause)
        if place and isinstance(meaning, OutputError):
            meaning.got = f"{meaning.got or cause.name} ({place})"
        if error.name not in _FENCED:
            try:
                until = min(deadline, time.monotonic() + _ABORT_S)
                with self._ending_at(until):
                    self._retried(self._producer.abort, until)
            except ClientError as later:
                self.close()
                error = later
        if error.name in _FENCED:
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

    def _fenced(self, error: ClientError, lasted_s: float) -> DrivetrainError:
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
            got=f"{self._target.secrets.scrubbed(error.text)}; this process published nothing of the batch",
            remedy="end one of the two: the same application with the same settings runs twice, perhaps on "
            "another machine or with another state directory",
        )

    def _retried(self, call: Callable[[], Any], deadline: float) -> None:
        """Call again after errors that allow it, until the time is over."""
        while True:
            try:
                call()
            except ClientError as error:
                left_s = deadline - time.monotonic()
                if not error.again or left_s <= 0:
                    raise
                time.sleep(min(_PAUSE_S, left_s))
            else:
                return

    @contextmanager
    def _ending_at(self, deadline: float) -> Iterator[None]:
        """Close the producer when a call outlasts the time: the call fails then."""
        self._is_late = False
        producer = self._producer

        def end() -> None:
            self._is_late = True
            producer.close()

        timer = threading.Timer(max(0.0, deadline - time.monotonic()) + _GRACE_S, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _deadline(self) -> float:
        return time.monotonic() + self._sink.timeout_ms / 1000
