"""How a transaction ends when calls to Kafka fail: a scripted client with the real one's errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from drivetrain import sinks
from drivetrain.connectors.kafka import transactional_producer
from drivetrain.connectors.kafka.target_topic import KafkaTarget
from drivetrain.connectors.kafka.transactional_producer import TransactionalProducer
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError

AWAY = KafkaError(KafkaError._TRANSPORT, "away", retriable=True)
ABORT = KafkaError(KafkaError._MSG_TIMED_OUT, "not delivered", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "a newer one", fatal=True)
BROKEN = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost its place", fatal=True)
CONFLICT = KafkaError(KafkaError._CONFLICT, "a call is in progress", retriable=True)
STATE = KafkaError(KafkaError._STATE, "not now")
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large", txn_requires_abort=True)
SECRET = "open-sesame"


class Client:
    """A producer that does what it is told: errors by call, in order, and then none."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        self.script = script
        self.calls: list[str] = []
        self.sent: list[tuple[Any, ...]] = []
        self.committed: list[tuple[Any, ...]] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        errors = self.script.get(name, [])
        if errors and (error := errors.pop(0)) is not None:
            raise error if isinstance(error, BufferError) else KafkaException(error)

    def begin_transaction(self) -> None:
        self._called("begin")
        self.sent = []

    def produce(self, *message: Any, **_told: Any) -> None:
        self._called("produce")
        self.sent.append(message)

    def send_offsets_to_transaction(self, offsets: list[Any], _group: object, _wait_s: float) -> None:
        self._called("offsets")
        self.sent.append((offsets[0].offset, offsets[0].metadata))

    def commit_transaction(self, _wait_s: float) -> None:
        self._called("commit")
        self.committed += self.sent

    def abort_transaction(self, _wait_s: float) -> None:
        self._called("abort")
        self.sent = []

    def open_again(self, producer: TransactionalProducer, markers: list[Any]) -> Callable[[float], Any]:
        """What a producer finds each time it opens this client again: a marker, none, or an error."""

        def opening(_deadline: float) -> Marker | None:
            self.calls.append("open")
            self.sent = []
            found = markers.pop(0)
            if isinstance(found, DrivetrainError):
                raise found
            producer._producer = self
            return found  # type: ignore[no-any-return]

        return opening

    def poll(self, _wait_s: float) -> int:
        return 0

    def purge(self, **_what: bool) -> None:
        self.calls.append("purge")


Opened = Callable[..., tuple[TransactionalProducer, Client]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    def make(timeout: str = "10 s", **script: list[Any]) -> tuple[TransactionalProducer, Client]:
        sink = sinks.kafka("b:1", "t", timeout=timeout, options={"ssl.key.password": SECRET})
        producer = TransactionalProducer(KafkaTarget(sink, dict(sink.options), "g"), "id")
        client = Client(script)
        producer._producer = client
        return producer, client

    names = SimpleNamespace(KafkaException=KafkaException, KafkaError=KafkaError)
    names.TopicPartition = confluent_kafka.TopicPartition
    monkeypatch.setattr(transactional_producer, "confluent_kafka", lambda: names)
    return make


def batches() -> list[Any]:
    return pa.table({"key": [b"a", None], "value": [b"1", b"2"]}).to_batches()


WHOLE = [("t", b"1", b"a"), ("t", b"2", None), (8, "me")]


@pytest.mark.parametrize(
    "script",
    [
        {},
        {"commit": [AWAY, AWAY]},
        {"offsets": [AWAY]},
        {"produce": [BufferError("full"), BufferError("full")]},
        {"commit": [ABORT]},
        {"produce": [None, ABORT], "abort": [AWAY]},
        {"offsets": [ABORT], "commit": [ABORT, AWAY]},
    ],
)
def test_what_passes_is_waited_out_and_the_batch_is_committed_whole_and_once(
    opened: Opened, script: dict[str, list[Any]]
) -> None:
    producer, client = opened(**script)
    assert producer.publish(batches, Marker("me", 7)) == 2
    assert client.committed == WHOLE
    assert producer.is_open


@pytest.mark.parametrize(
    ("script", "kind", "what"),
    [
        ({"commit": [FENCED]}, OutputError, "another process has taken over"),
        ({"produce": [FENCED]}, OutputError, "another process has taken over"),
        ({"commit": [ABORT], "abort": [FENCED]}, OutputError, "another process has taken over"),
        ({"commit": [TOO_LARGE]}, OutputError, "too large for the topic"),
    ],
)
def test_what_does_not_pass_closes_the_producer_and_is_told(
    opened: Opened, script: dict[str, list[Any]], kind: type[DrivetrainError], what: str
) -> None:
    producer, client = opened(**script)
    with pytest.raises(kind, match=what):
        producer.publish(batches, Marker("me", 7))
    assert client.committed == []
    assert not producer.is_open
    assert client.calls[-1] == "purge"


BEFORE, AFTER = Marker("me", 6), Marker("me", 7)
UNREACHABLE = UnavailableError("no Kafka broker answers", where="t")


@pytest.mark.parametrize(
    ("script", "found", "sent"),
    [
        ({"offsets": [ABORT], "abort": [STATE]}, [BEFORE], WHOLE),
        ({"commit": [ABORT], "abort": [AWAY, STATE]}, [None], WHOLE),
        ({"commit": [BROKEN]}, [BEFORE], WHOLE),
        ({"commit": [BROKEN]}, [UNREACHABLE, UNREACHABLE, BEFORE], WHOLE),
        ({"commit": [BROKEN, BROKEN]}, [BEFORE, BEFORE], WHOLE),
        ({"commit": [ABORT], "abort": [STATE]}, [AFTER], []),
        ({"commit": [BROKEN]}, [UNREACHABLE, Marker("me", 8)], []),
    ],
)
def test_a_transaction_that_cannot_be_given_up_is_ended_by_opening_and_the_marker_says_how(
    opened: Opened, script: dict[str, list[Any]], found: list[Any], sent: list[Any]
) -> None:
    producer, client = opened(**script)
    producer._open = client.open_again(producer, found)  # type: ignore[method-assign]
    assert producer.publish(batches, AFTER) == 2
    assert client.committed == sent
    assert found == []
    assert producer.is_open


@pytest.mark.parametrize(
    ("found", "kind", "what"),
    [
        ([Marker("another", 3)], OutputError, "another state directory"),
        ([OutputError("this user may not", where="t")], OutputError, "may not"),
    ],
)
def test_what_is_found_on_opening_again_may_end_it(
    opened: Opened, found: list[Any], kind: type[DrivetrainError], what: str
) -> None:
    producer, client = opened(commit=[BROKEN])
    producer._open = client.open_again(producer, found)  # type: ignore[method-assign]
    with pytest.raises(kind, match=what):
        producer.publish(batches, AFTER)
    assert client.committed == []
    assert not producer.is_open


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Does not come while a test runs."""
    event = threading.Event()
    yield event
    event.set()


def test_a_client_that_does_not_come_back_is_left_behind(
    opened: Opened, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_producer, "_SLICE_S", 0.01)
    monkeypatch.setattr(transactional_producer, "_GRACE_S", 0.01)
    producer, client = opened(abort=[CONFLICT, CONFLICT])
    plain = client.send_offsets_to_transaction

    def once(*told: Any) -> None:
        client.send_offsets_to_transaction = plain  # type: ignore[method-assign]
        never.wait(60)

    client.send_offsets_to_transaction = once  # type: ignore[method-assign]
    producer._open = client.open_again(producer, [BEFORE])  # type: ignore[method-assign]
    assert producer.publish(batches, AFTER) == 2
    assert client.committed == WHOLE
    assert client.calls.count("abort") == 1, "a call that is stuck is not waited for"
    assert client.calls.count("begin") == 2


@pytest.mark.parametrize(
    "script", [{"commit": [AWAY] * 99}, {"produce": [BufferError("full")] * 99, "abort": [AWAY] * 99}]
)
def test_brokers_that_stay_away_are_waited_for_no_longer_than_the_time(
    opened: Opened, script: dict[str, list[Any]]
) -> None:
    producer, client = opened(timeout="0 s", **script)
    with pytest.raises(UnavailableError, match="no Kafka broker answers"):
        producer.publish(batches, Marker("me", 7))
    assert client.committed == []
    assert not producer.is_open


def test_a_message_that_was_refused_is_named_by_topic_and_key_and_not_by_its_value(opened: Opened) -> None:
    producer, client = opened(commit=[ABORT])
    message = SimpleNamespace(topic=lambda: "t", key=lambda: b"which", value=lambda: b"private")
    begin = client.begin_transaction

    def begin_and_refuse() -> None:
        begin()
        producer._note_refusal(TOO_LARGE, message)

    client.begin_transaction = begin_and_refuse  # type: ignore[method-assign]
    with pytest.raises(OutputError, match="too large for the topic") as caught:
        producer.publish(batches, Marker("me", 7))
    assert "topic t, key 'which'" in str(caught.value)
    assert "private" not in str(caught.value)


def test_a_refused_login_is_the_reason_of_what_follows_and_keeps_its_secret(opened: Opened) -> None:
    producer, client = opened(commit=[AWAY])
    told = KafkaError(KafkaError._AUTHENTICATION, f"bad password {SECRET}")
    client.begin_transaction = lambda: producer._target.note_error(told)  # type: ignore[method-assign]
    with pytest.raises(OutputError, match="does not let this application in") as caught:
        producer.publish(batches, Marker("me", 7))
    assert SECRET not in str(caught.value)


class DiesError(BaseException):
    """The process dies at a crash point."""


@pytest.mark.parametrize(
    ("point", "committed", "calls"),
    [
        (CrashPoint.IN_TRANSACTION, [], ["begin", "produce", "produce", "offsets", "purge"]),
        (CrashPoint.AFTER_TRANSACTION, WHOLE, ["begin", "produce", "produce", "offsets", "commit", "purge"]),
    ],
    ids=["in", "after"],
)
def test_a_process_that_dies_in_a_transaction_has_sent_all_of_it_and_commits_nothing(
    opened: Opened, point: CrashPoint, committed: list[Any], calls: list[str]
) -> None:
    producer, client = opened()
    passed: list[CrashPoint] = []

    def dies(reached: CrashPoint) -> None:
        passed.append(reached)
        if reached is point:
            raise DiesError

    with armed(dies), pytest.raises(DiesError):
        producer.publish(batches, Marker("me", 7))
    assert passed[-1] is point
    assert client.sent == WHOLE, "the marker is in the same transaction as the messages"
    assert client.committed == committed
    assert client.calls == calls
    assert not producer.is_open, "the transaction ends by its timeout, or when the next process opens it"
