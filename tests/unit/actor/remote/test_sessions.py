"""Sessions, outboxes and reliable streams, alone and against a network that does anything."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.actor import ActorPath, Address, Envelope, Message
from drivetrain.actor.path import ANY_INCARNATION
from drivetrain.actor.remote.handshake import Agreement
from drivetrain.actor.remote.link import FRAME_OVERHEAD_BYTES
from drivetrain.actor.remote.paths import PathReader, PathWriter
from drivetrain.actor.remote.reliable import ReliableReceiver, ReliableSender, Verdict
from drivetrain.actor.remote.remote_errors import MessageTooLargeError, ProtocolViolationError
from drivetrain.actor.remote.session import Session
from drivetrain.actor.remote.unsent_messages import BATCH_BYTES, Outbox, Outgoing
from drivetrain.actor.remote.wire import (
    Batch,
    Goodbye,
    Heartbeat,
    Item,
    SystemAck,
    SystemMessage,
    decode,
    describe,
    encode,
)
from nightly_run import examples

ME = Address("me", "h", 1, 10)
YOU = Address("you", "h", 2, 20)
YOUR_PLACE = Address("you", "h", 2, ANY_INCARNATION)
MY_PLACE = Address("me", "h", 1, ANY_INCARNATION)


class Word(Message, frozen=True, tag="sessions.word"):
    text: str


def envelope(target: Address, text: str = "w") -> Envelope:
    return Envelope(ActorPath(target, ("user", "a"), 7), Word(text), ActorPath(ME, ("user", "b"), 8))


def agreement(peer: Address, number: int, *, is_resumed: bool = False, limit: int = 10_000) -> Agreement:
    return Agreement(peer, number, is_resumed, limit, limit, None, None)


def session(*, most: int = 100, most_bytes: int = 1_000_000) -> Session:
    made = Session(ME, YOUR_PLACE, 10_000, most, most_bytes)
    made.begin(agreement(YOU, 1))
    return made


def put(made: Session, text: str, *, system: bool = False, target: Address = YOU) -> Outgoing:
    outgoing = made.prepare(envelope(target, text), "t", b"\xa1" + text.encode()[:1])
    if system:
        made.put_system(outgoing)
    else:
        assert made.put(outgoing)
    return outgoing


# ---- outbox


@given(st.lists(st.tuples(st.booleans(), st.integers(1, BATCH_BYTES)), max_size=60))
def test_an_outbox_packs_in_order_without_gaps_and_never_too_much(sizes: list[tuple[bool, int]]) -> None:
    outbox = Outbox(1_000, 10**9)
    for at, (is_system, size) in enumerate(sizes):
        outbox.put(
            Outgoing(envelope(YOU, str(at)), (str(at), None, "t", b""), size, at + 1 if is_system else 0)
        )  # type: ignore[arg-type]
    frames = list(outbox.frames())
    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
    left: list[Item] = []
    for frame in frames:
        left += frame.items if isinstance(frame, Batch) else [frame.item]
        if isinstance(frame, Batch):
            total = sum(sizes[int(item[0])][1] for item in frame.items)
            assert len(frame.items) == 1 or total <= BATCH_BYTES
    assert [item[0] for item in left] == [str(at) for at in range(len(sizes))]
    assert (len(outbox), outbox.waiting_bytes) == (0, 0)


def test_an_outbox_refuses_what_does_not_fit_but_always_takes_system_messages() -> None:
    made = session(most=2)
    put(made, "a")
    put(made, "b")
    assert not made.put(made.prepare(envelope(YOU), "t", b"x"))
    put(made, "c", system=True)
    assert len(made.outbox) == 3
    narrow = session(most_bytes=60)
    put(narrow, "a")
    assert not narrow.put(narrow.prepare(envelope(YOU), "t", bytes(30)))


# ---- reliable streams


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_reliable_stream_delivers_once_and_in_order_whatever_the_network_does(
    seed: int, count: int
) -> None:
    random = Random(seed)
    sender: ReliableSender[int] = ReliableSender()
    receiver = ReliableReceiver()
    delivered: list[int] = []
    way: list[tuple[int, int]] = []
    acks: list[int] = []
    todo = list(range(count))
    for _ in range(10_000):
        match random.randrange(6):
            case 0 if todo:
                message = todo.pop(0)
                way.append((sender.add(message), message))
            case 1:
                way.extend(sender.unacknowledged())
            case 2 if way:
                way.pop(random.randrange(len(way)))
            case 3 | 4 if way:
                position, message = way[random.randrange(len(way))]
                if receiver.receive(position) is Verdict.DELIVER:
                    delivered.append(message)
                acks.append(receiver.delivered)
            case 5 if acks:
                sender.acknowledged(acks.pop(random.randrange(len(acks))))
        sender.check()
        del way[50:]
        if not todo and not len(sender):
            break
    assert delivered == list(range(count))


# ---- sessions


def test_frames_that_come_late_or_twice_are_dropped() -> None:
    made = session()
    item: Item = ("/user/a#7", None, "t", b"")  # type: ignore[assignment]
    assert made.accept(Batch(2, [item])) == [item]
    assert made.accept(Batch(2, [item])) == []
    assert made.accept(Batch(1, [item])) == []
    assert made.accept(Batch(5, [item])) == [item]
    assert made.dropped_frames == 2


def test_nothing_comes_after_a_terminated_that_was_sent_before_it() -> None:
    made = session()
    item: Item = ("/user/a#7", None, "t", b"")  # type: ignore[assignment]
    assert made.accept(SystemMessage(3, 1, item)) == [item]
    assert made.accept(Batch(2, [item])) == []


def test_a_resumed_session_goes_on_numbering_and_a_new_one_starts_over() -> None:
    made = session()
    put(made, "a")
    put(made, "s", system=True)
    assert [frame.number for frame in made.outbox.frames()] == [1, 2]
    made.begin(agreement(YOU, 1, is_resumed=True))
    assert [(frame.number, frame.position) for frame in made.again()] == [(3, 1)]
    made.begin(agreement(YOU, 2))
    assert [(frame.number, frame.position) for frame in made.again()] == [(1, 1)]
    made.acknowledged(1)
    assert not made.has_unacknowledged


def test_a_new_session_renumbers_unacknowledged_system_messages_densely() -> None:
    made = session()
    for text in "abc":
        put(made, text, system=True)
    list(made.outbox.frames())
    made.acknowledged(1)
    put(made, "d", system=True)
    made.begin(agreement(YOU, 2))
    assert [frame.position for frame in made.again()] == [1, 2]
    assert [frame.position for frame in made.outbox.frames() if isinstance(frame, SystemMessage)] == [3]


def test_messages_for_another_incarnation_are_given_back_when_a_session_begins() -> None:
    made = Session(ME, YOUR_PLACE, 10_000, 100, 10_000)
    newer = Address("you", "h", 2, 99)
    put(made, "a", target=YOU)
    put(made, "b", target=newer)
    put(made, "c", target=YOUR_PLACE)
    put(made, "d", system=True, target=newer)
    strays = made.begin(agreement(YOU, 1))
    assert [stray.envelope.message for stray in strays] == [Word("b"), Word("d")]
    (batch,) = made.outbox.frames()
    assert len(batch.items) == 2
    assert not made.has_unacknowledged


def test_the_end_of_a_life_gives_back_what_waits_for_it_and_keeps_the_rest() -> None:
    made = session()
    newer = Address("you", "h", 2, 99)
    put(made, "a")
    put(made, "s", system=True)
    put(made, "b", target=newer)
    assert [one.envelope.message for one in made.end(YOU)] == [Word("a")]
    assert (made.number, made.has_unacknowledged, len(made.outbox)) == (0, False, 1)


def test_a_message_over_the_peers_limit_is_refused() -> None:
    made = session()
    made.begin(agreement(YOU, 2, limit=2_000))
    with pytest.raises(MessageTooLargeError) as caught:
        made.prepare(envelope(YOU), "t", bytes(2_000))
    assert caught.value.limit_bytes == 2_000
    made.prepare(envelope(YOU), "t", bytes(1_900))


def test_what_was_queued_before_the_peers_limit_was_known_is_taken_out_when_it_is() -> None:
    made = Session(ME, YOUR_PLACE, 10_000, 100, 100_000)
    small = put(made, "small")
    large = made.prepare(envelope(YOU, "large"), "t", bytes(5_000))
    assert made.put(large)
    made.begin(agreement(YOU, 1, limit=2_000))
    ((taken, error),) = made.take_too_large()
    assert taken is large
    assert error.limit_bytes == 2_000
    (batch,) = made.outbox.frames()
    assert batch.items == [small.item]


def test_batches_fit_into_what_the_peer_takes() -> None:
    made = session()
    made.begin(agreement(YOU, 2, limit=2_000))
    for _ in range(20):
        assert made.put(made.prepare(envelope(YOU), "t", b"\xc4\xff" + bytes(255)))
    frames = list(made.outbox.frames())
    assert sum(len(frame.items) for frame in frames) == 20
    assert all(len(encode(frame)) <= 2_000 + FRAME_OVERHEAD_BYTES for frame in frames)


def test_giving_up_on_system_messages_starts_a_new_session() -> None:
    made = session()
    put(made, "a")
    put(made, "s", system=True)
    made.forget_system()
    assert (made.number, made.has_unacknowledged, len(made.outbox)) == (0, False, 1)


# ---- paths and frames


@pytest.mark.parametrize("uid", [0, 5])
@pytest.mark.parametrize("address", [ME, YOU, YOUR_PLACE])
def test_paths_survive_the_way_and_are_short_at_home(address: Address, uid: int) -> None:
    path = ActorPath(address, ("user", "x", "y"), uid)
    text = PathWriter(YOU).write(path)
    assert PathReader(YOU).read(text) == path
    assert (len(text) < 15) == (address == YOU)


@given(st.binary(max_size=80))
def test_noise_is_no_frame_and_can_be_described(noise: bytes) -> None:
    assert describe(noise)
    try:
        frame = decode(noise)
    except ProtocolViolationError:
        return
    assert decode(encode(frame)) == frame


def test_frames_survive_the_way() -> None:
    for frame in (Heartbeat(3), SystemAck(9), Goodbye(), Batch(1, [])):
        assert decode(encode(frame)) == frame
