"""How a transaction ends when calls to Kafka fail: a scripted client with the real one's errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from drivetrain import sinks
from drivetrain.connectors.kafka import transactional_producer
from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.connectors.kafka.java_producer import DAMAGED
from drivetrain.connectors.kafka.target_topic import KafkaTarget
from drivetrain.connectors.kafka.transactional_producer import TransactionalProducer
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DiskFullError, DrivetrainError, OutputError, UnavailableError

AWAY = ClientError("REQUEST_TIMED_OUT", "away", again=True, passes=True)
ABORT = ClientError("REQUEST_TIMED_OUT", "not delivered", passes=True)
FENCED = ClientError("PRODUCER_FENCED", "a newer one")
BROKEN = ClientError("OUT_OF_ORDER_SEQUENCE_NUMBER", "lost its place")
STATE = ClientError("IllegalStateException", "not now")
TOO_LARGE = ClientError("MESSAGE_TOO_LARGE", "too large")
CLOSED = ClientError("KafkaException", "the producer was closed")
SECRET = "open-sesame"


class Client:
    """A producer that does what it is told: errors by call, in order, and then none."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        self.script = script
        self.calls: list[str] = []
        self.sent: list[tuple[Any, ...]] = []
        self.committed: list[tuple[Any, ...]] = []
        self.refused: tuple[ClientError, str] | None = None

    def _called(self, name: str) -> None:
        self.calls.append(name)
        errors = self.script.get(name, [])
        if errors and (error := errors.pop(0)) is not None:
            raise error

    def begin(self) -> None:
        self._called("begin")
        self.sent = []

    def send(self, segment: Segment) -> int:
        self._called("send")
        self.sent.append((segment.path,))
        return segment.rows

    def mark(self, _group: str, topic: str, offset: int, metadata: str) -> None:
        self._called("mark")
        self.sent.append((topic, offset, metadata))

    def commit(self) -> None:
        self._called("commit")
        self.committed += self.sent

    def abort(self) -> None:
        self._called("abort")
        self.sent = []

    def refusal(self) -> tuple[ClientError, str] | None:
        return self.refused

    def close(self) -> None:
        self.calls.append("close")

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


Opened = Callable[..., tuple[TransactionalProducer, Client]]


@pytest.fixture
def opened() -> Opened:
    def make(timeout: str = "10 s", **script: list[Any]) -> tuple[TransactionalProducer, Client]:
        sink = sinks.kafka("b:1", "t", timeout=timeout, options={"ssl.key.password": SECRET})
        producer = TransactionalProducer(KafkaTarget(sink, dict(sink.options), "g"), "id", None, "app")
        client = Client(script)
        producer._producer = client
        return producer, client

    return make


SEGMENTS = [Segment(path, rows, 1, 1, 0, 0) for path, rows in (("/first", 2), ("/second", 1))]
WHOLE = [("/first",), ("/second",), ("t", 8, "me\0")]


@pytest.mark.parametrize(
    "script",
    [
        {},
        {"commit": [AWAY, AWAY]},
        {"mark": [AWAY]},
        {"commit": [ABORT]},
        {"send": [None, ABORT], "abort": [AWAY]},
        {"mark": [ABORT], "commit": [ABORT, AWAY]},
    ],
)
def test_what_passes_is_waited_out_and_the_batch_is_committed_whole_and_once(
    opened: Opened, script: dict[str, list[Any]]
) -> None:
    producer, client = opened(**script)
    assert producer.publish(SEGMENTS, Marker("me", 7)) == 3
    assert client.committed == WHOLE
    assert producer.is_open


@pytest.mark.parametrize(
    ("script", "kind", "what"),
    [
        ({"commit": [FENCED]}, OutputError, "another process has taken over"),
        ({"send": [FENCED]}, OutputError, "another process has taken over"),
        ({"commit": [ABORT], "abort": [FENCED]}, OutputError, "another process has taken over"),
        ({"commit": [TOO_LARGE]}, OutputError, "too large for the topic"),
    ],
)
def test_what_does_not_pass_closes_the_producer_and_is_told(
    opened: Opened, script: dict[str, list[Any]], kind: type[DrivetrainError], what: str
) -> None:
    producer, client = opened(**script)
    with pytest.raises(kind, match=what):
        producer.publish(SEGMENTS, Marker("me", 7))
    assert client.committed == []
    assert not producer.is_open
    assert client.calls[-1] == "close"


BEFORE, AFTER = Marker("me", 6), Marker("me", 7)
UNREACHABLE = UnavailableError("no Kafka broker answers", where="t")


@pytest.mark.parametrize(
    ("script", "found", "sent"),
    [
        ({"mark": [ABORT], "abort": [STATE]}, [BEFORE], WHOLE),
        ({"commit": [ABORT], "abort": [AWAY, STATE]}, [None], WHOLE),
        ({"commit": [BROKEN], "abort": [BROKEN]}, [BEFORE], WHOLE),
        ({"commit": [BROKEN], "abort": [BROKEN]}, [UNREACHABLE, UNREACHABLE, BEFORE], WHOLE),
        ({"commit": [BROKEN, BROKEN], "abort": [BROKEN, BROKEN]}, [BEFORE, BEFORE], WHOLE),
        ({"commit": [ABORT], "abort": [STATE]}, [AFTER], []),
        ({"commit": [BROKEN], "abort": [BROKEN]}, [UNREACHABLE, Marker("me", 8)], []),
    ],
)
def test_a_transaction_that_cannot_be_given_up_is_ended_by_opening_and_the_marker_says_how(
    opened: Opened, script: dict[str, list[Any]], found: list[Any], sent: list[Any]
) -> None:
    producer, client = opened(**script)
    producer._open = client.open_again(producer, found)  # type: ignore[method-assign]
    assert producer.publish(SEGMENTS, AFTER) == 3
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
    producer, client = opened(commit=[BROKEN], abort=[BROKEN])
    producer._open = client.open_again(producer, found)  # type: ignore[method-assign]
    with pytest.raises(kind, match=what):
        producer.publish(SEGMENTS, AFTER)
    assert client.committed == []
    assert not producer.is_open


@pytest.mark.parametrize("stuck", ["begin", "send", "mark", "commit"])
def test_a_call_that_does_not_return_ends_with_the_time_because_the_producer_is_closed(
    opened: Opened, stuck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_producer, "_GRACE_S", 0.01)
    producer, client = opened(timeout="0 s")
    closed = threading.Event()

    def waits(*_given: Any) -> None:
        assert closed.wait(60)
        raise CLOSED

    monkeypatch.setattr(client, stuck, waits)
    monkeypatch.setattr(client, "close", closed.set)
    with pytest.raises(UnavailableError, match="no Kafka broker answers"):
        producer.publish(SEGMENTS, AFTER)
    assert client.committed == []
    assert not producer.is_open


def test_a_file_that_is_damaged_ends_it_without_another_try(opened: Opened) -> None:
    producer, client = opened(send=[None, ClientError(DAMAGED, "/second")])
    with pytest.raises(ClientError, match="/second"):
        producer.publish(SEGMENTS, AFTER)
    assert client.calls == ["begin", "send", "send", "close"]
    assert not producer.is_open


@pytest.mark.parametrize("script", [{"commit": [AWAY] * 99}, {"send": [ABORT] * 99, "abort": [AWAY] * 99}])
def test_brokers_that_stay_away_are_waited_for_no_longer_than_the_time(
    opened: Opened, script: dict[str, list[Any]]
) -> None:
    producer, client = opened(timeout="0 s", **script)
    with pytest.raises(UnavailableError, match="no Kafka broker answers"):
        producer.publish(SEGMENTS, Marker("me", 7))
    assert client.committed == []
    assert not producer.is_open


def test_a_message_that_was_refused_is_the_reason_and_is_named_by_topic_and_key(opened: Opened) -> None:
    producer, client = opened(commit=[ABORT])
    client.refused = (TOO_LARGE, "topic t, key 'which'")
    with pytest.raises(OutputError, match="too large for the topic") as caught:
        producer.publish(SEGMENTS, Marker("me", 7))
    assert "topic t, key 'which'" in str(caught.value)


def test_a_refused_login_is_told_and_keeps_its_secret(opened: Opened) -> None:
    refused = ClientError("SASL_AUTHENTICATION_FAILED", f"bad password {SECRET}")
    producer, _ = opened(commit=[refused], abort=[refused])
    with pytest.raises(OutputError, match="does not let this application in") as caught:
        producer.publish(SEGMENTS, Marker("me", 7))
    assert SECRET not in str(caught.value)


def test_what_must_come_before_a_commit_comes_before_each_try_and_after_the_messages(opened: Opened) -> None:
    producer, client = opened(commit=[ABORT, AWAY])
    producer.publish(SEGMENTS, Marker("me", 7), lambda: client.calls.append("noted"))
    tries = ["begin", "send", "send", "mark", "noted", "commit"]
    assert client.calls == [*tries, "abort", *tries, "commit"]
    assert client.committed == WHOLE


def test_nothing_is_committed_if_what_must_come_before_fails(opened: Opened) -> None:
    producer, client = opened()

    def fails() -> None:
        raise DiskFullError("no space left", where="the note")

    with pytest.raises(DiskFullError):
        producer.publish(SEGMENTS, Marker("me", 7), fails)
    assert client.calls == ["begin", "send", "send", "mark", "close"]
    assert client.committed == []
    assert not producer.is_open, "opening it again ends the transaction"


class DiesError(BaseException):
    """The process dies at a crash point."""


@pytest.mark.parametrize(
    ("point", "committed", "calls"),
    [
        (CrashPoint.IN_TRANSACTION, [], ["begin", "send", "send", "mark", "close"]),
        (CrashPoint.AFTER_TRANSACTION, WHOLE, ["begin", "send", "send", "mark", "commit", "close"]),
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
        producer.publish(SEGMENTS, Marker("me", 7))
    assert passed[-1] is point
    assert client.sent == WHOLE, "the marker is in the same transaction as the messages"
    assert client.committed == committed
    assert client.calls == calls
    assert not producer.is_open, "the transaction ends by its timeout, or when the next process opens it"
