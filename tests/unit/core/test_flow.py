"""Flow control: when a producer waits, what is asked and answered, and that losses are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.flow.flow import (
    REMADE,
    UNREADABLE,
    Ack,
    AckRequest,
    ReportLoss,
    SendAck,
    SendAckRequest,
    SentEntry,
    Window,
)
from drivetrain.core.flow.flow_receiver import FlowReceiver
from drivetrain.core.flow.flow_sender import FlowSender
from drivetrain.errors import InternalError, PeerViolationError

WIDE = Window(rows=0, bytes=0, entries=1_000)


def entry(number: int, rows: int = 10) -> SentEntry:
    """An entry whose checksum follows from its number."""
    return SentEntry(number, rows, rows * 100, number * 7 + 1)


def sender(window: Window = WIDE, *, position: int = 0, sent: int = 0, incarnation: int = 1) -> FlowSender:
    """A sender whose log holds `sent` entries behind `position`."""
    known = [entry(number) for number in range(position, position + sent)]
    return FlowSender(window, incarnation=incarnation, position=position, entries=known)


def asked(effects: list[object]) -> AckRequest:
    """The request among the effects."""
    (request,) = effects
    assert isinstance(request, SendAckRequest)
    return request.request


def answered(effects: list[object]) -> Ack:
    """The ack among the effects."""
    (ack,) = effects
    assert isinstance(ack, SendAck)
    return ack.ack


@pytest.mark.parametrize(
    "window",
    [Window(rows=30, bytes=0, entries=99), Window(rows=0, bytes=3_000, entries=99), Window(0, 0, 3)],
)
def test_the_window_is_full_at_its_messages_bytes_or_entries(window: Window) -> None:
    flow = sender(window)
    for number in range(3):
        assert not flow.is_full
        flow.appended(entry(number), 0)
    assert flow.is_full
    with pytest.raises(InternalError, match="invariant 1"):
        flow.appended(entry(3), 0)
    assert flow.unacknowledged == (30, 3_000, 3)
    flow.appended(SentEntry(3, 0, 0, 0), 0)  # a move of the clock
    flow.appended(entry(4), 0, last=True)
    flow.check()


def test_barriers_take_no_room_and_nobody_is_asked_for_them() -> None:
    flow = sender(Window(0, 0, 1))
    flow.appended(SentEntry(0, 0, 0, 0, is_barrier=True), 0)
    flow.appended(SentEntry(1, 0, 0, 0, is_barrier=True), 0)
    assert not flow.is_full
    assert flow.unacknowledged == (0, 0, 0)
    assert flow.ticked(100_000) == []
    request = asked(flow.appended(entry(2), 100_000))
    assert flow.is_full
    assert (request.start, request.end) == (0, 3)
    flow.acknowledged(Ack(request.incarnation, request.seq, (0, 1, 0), 0, 3, 10), 100_001)
    assert flow.unacknowledged == (0, 0, 0)
    flow.check()


def test_one_batch_may_exceed_the_window() -> None:
    flow = sender(Window(rows=30, bytes=0, entries=99))
    flow.appended(entry(0, rows=29), 0)
    flow.appended(entry(1, rows=1_000), 0)
    assert flow.is_full
    flow.check()


def test_an_ack_is_requested_at_each_step_and_covers_many_entries() -> None:
    flow = sender(Window(0, 0, 32))
    effects = [flow.appended(entry(number), 0) for number in range(8)]
    assert [bool(e) for e in effects] == [False, False, False, True] * 2
    request = asked(effects[-1])
    assert (request.start, request.end, request.seq) == (0, 8, 2)
    assert request.entries[7] == (10, 50)
    flow.acknowledged(Ack(1, 2, (0, 5, 0), 0, 8, 80), 1)
    assert flow.unacknowledged == (0, 0, 0)


def test_an_idle_producer_asks_and_asks_again_without_an_answer() -> None:
    flow = sender()
    assert flow.ticked(10_000) == []
    flow.appended(entry(0), 10_000)
    first = asked(flow.ticked(10_200))
    assert first.end == 1
    assert flow.ticked(10_300) == []
    second = asked(flow.ticked(11_200))
    assert second.seq == first.seq + 1
    flow.acknowledged(
        Ack(1, first.seq, (0, 0, 0), 0, 1, 10), 11_201
    )  # the answer to the first is late, and good
    assert flow.ticked(20_000) == []


def test_stale_incarnations_and_lives_change_nothing() -> None:
    flow = sender(sent=2, incarnation=3)
    flow.ticked(1_000)
    flow.acknowledged(Ack(2, 1, (0, 0, 0), 0, 2, 0), 1_000)
    assert (flow.position, flow.stale) == (0, 1)
    flow.acknowledged(Ack(3, 1, (0, 7, 0), 0, 1, 10), 1_000)
    flow.acknowledged(Ack(3, 1, (0, 6, 0), 0, 2, 20), 1_000)
    assert (flow.position, flow.stale) == (1, 2)
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    receiver.requested(AckRequest(3, 1, 0, ()), [], 0)
    assert receiver.requested(AckRequest(2, 9, 0, ()), [], 0) == []
    assert receiver.stale == 1


@pytest.mark.parametrize(
    "ack",
    [
        Ack(1, 2, (0, 0, 0), 0, 1, 10),
        Ack(1, 1, (0, 0, 0), 0, 3, 30),
        Ack(1, 1, (0, 0, 0), 2, 1, 0),
        Ack(1, 1, (0, 0, 0), 0, 1, -1),
    ],
)
def test_what_no_subscriber_can_say_is_a_violation_and_changes_nothing(ack: Ack) -> None:
    flow = sender(sent=2)
    flow.ticked(1_000)
    with pytest.raises(PeerViolationError):
        flow.acknowledged(ack, 1_000)
    assert flow.position == 0


def test_more_messages_than_were_sent_are_a_violation_and_change_nothing() -> None:
    flow = sender(sent=3)
    flow.ticked(1_000)
    with pytest.raises(PeerViolationError, match="at most 20 messages of entries 0 to 1"):
        flow.acknowledged(Ack(1, 1, (0, 9, 0), 0, 2, 21), 1_000)
    assert flow.position == 0
    flow.acknowledged(Ack(1, 1, (0, 4, 0), 0, 2, 20), 1_000)  # of a life below that of the violation
    assert (flow.position, flow.stale) == (2, 0)


def test_of_an_entry_that_its_producer_cannot_read_any_number_may_be_received() -> None:
    known = [entry(0), SentEntry(1, 0, 0, UNREADABLE), entry(2)]
    flow = FlowSender(WIDE, incarnation=1, position=0, entries=known)
    flow.ticked(1_000)
    (found,) = flow.acknowledged(Ack(1, 1, (0, 1, 0), 0, 3, 19), 1_000)
    assert isinstance(found, ReportLoss)
    flow.acknowledged(Ack(1, 1, (0, 2, 0), 0, 3, 35), 1_000)
    assert flow.position == 3


def test_a_life_of_a_later_epoch_or_attempt_is_newer() -> None:
    flow = sender(sent=4)
    flow.ticked(1_000)
    for position, life in enumerate([(1, 9, 9), (2, 0, 5), (2, 1, 0), (2, 1, 1)], start=1):
        flow.acknowledged(Ack(1, 1, life, 0, position, 10 * position), 1_000)
        assert flow.position == position


def test_fewer_messages_than_were_sent_are_a_loss_until_a_new_life_begins() -> None:
    flow = sender(sent=3)
    flow.ticked(1_000)
    (found,) = flow.acknowledged(Ack(1, 1, (0, 4, 0), 0, 2, 19), 1_000)
    assert isinstance(found, ReportLoss)
    assert (found.loss.start, found.loss.end) == (0, 2)
    assert (found.loss.expected, found.loss.got) == ("20 messages", "19 messages")
    assert flow.acknowledged(Ack(1, 1, (0, 4, 0), 0, 3, 30), 1_000) == []
    assert flow.position == 0
    flow.acknowledged(Ack(1, 1, (0, 5, 0), 0, 3, 30), 1_000)
    assert (flow.position, flow.loss) == (3, None)


def test_what_an_earlier_life_committed_is_acknowledged_by_its_checkpoint() -> None:
    flow = sender(sent=4)
    request = asked(flow.ticked(1_000))
    receiver = FlowReceiver(life=(0, 9, 0), position=3)
    ack = answered(receiver.requested(request, [entry(3)], 0))
    assert (ack.start, ack.position, ack.received) == (3, 3, 0)
    flow.acknowledged(ack, 1_000)
    assert flow.position == 3
    ack = answered(receiver.taken(3, 4, 10, 10))
    flow.acknowledged(ack, 1_001)
    assert flow.position == 4


def test_a_missing_entry_is_lost_after_the_grace_and_another_content_at_once() -> None:
    request = asked(sender(sent=2).ticked(1_000))
    receiver = FlowReceiver(life=(0, 1, 0), position=0, grace_ms=500)
    receiver.requested(request, [entry(0), None], 1_000)
    receiver.requested(request, [entry(0), None], 1_499)
    assert receiver.loss is None
    (found,) = receiver.requested(request, [entry(0), None], 1_500)
    assert isinstance(found, ReportLoss)
    assert (found.loss.start, found.loss.end, found.loss.got) == (1, 2, "the entry is missing")
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    (found,) = receiver.requested(request, [entry(0), SentEntry(1, 10, 1_000, 0)], 1_000)
    assert isinstance(found, ReportLoss)
    assert found.loss.start == 1
    assert receiver.taken(0, 1, 10, 10) == []  # nothing is acknowledged after a loss


def test_an_entry_that_appears_within_the_grace_is_no_loss() -> None:
    request = asked(sender(sent=1).ticked(1_000))
    receiver = FlowReceiver(life=(0, 1, 0), position=0, grace_ms=500)
    receiver.requested(request, [None], 1_000)
    receiver.requested(request, [entry(0)], 1_400)
    receiver.requested(request, [None], 2_000)
    assert receiver.loss is None


def test_an_entry_that_was_made_again_is_compared_by_its_messages_alone() -> None:
    request = asked(sender(sent=2).ticked(1_000))
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    receiver.requested(request, [SentEntry(0, 10, 999, REMADE), entry(1)], 0)
    assert receiver.loss is None
    receiver.requested(request, [SentEntry(0, 9, 999, REMADE), entry(1)], 0)
    assert receiver.loss is not None


def test_who_trusts_says_that_it_took_what_was_sent() -> None:
    flow = sender(sent=3)
    receiver = FlowReceiver(life=(0, 1, 0), position=0, trusts=True)
    receiver.requested(asked(flow.ticked(1_000)), [None, None, None], 0)
    ack = answered(receiver.taken(0, 2, 3, 20))
    assert (ack.start, ack.position, ack.received) == (0, 2, 20)
    assert flow.acknowledged(ack, 1_000) == []
    flow.appended(entry(3), 1_000)
    ack = answered(receiver.taken(2, 4, 0, 20))  # beyond what it was asked about
    assert (ack.start, ack.position, ack.received) == (0, 3, 30)
    flow.acknowledged(ack, 1_000)
    assert flow.position == 3


def test_batches_are_acknowledged_as_they_are_committed_until_all_is_there() -> None:
    request = asked(sender(sent=4).ticked(1_000))
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    receiver.requested(request, [entry(number) for number in range(4)], 0)
    assert answered(receiver.taken(0, 3, 30, 30)) == Ack(1, 1, (0, 1, 0), 0, 3, 30)
    assert answered(receiver.taken(3, 4, 10, 10)) == Ack(1, 1, (0, 1, 0), 0, 4, 40)
    assert receiver.taken(4, 5, 10, 10) == []
    with pytest.raises(InternalError):
        receiver.taken(4, 6, 10, 10)
    receiver.check()


def test_a_batch_that_took_fewer_messages_than_its_entries_hold_is_a_loss_at_once() -> None:
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    (found,) = receiver.taken(0, 2, 19, 20)
    assert isinstance(found, ReportLoss)
    assert (found.loss.start, found.loss.end, found.loss.got) == (0, 2, "19 messages")


@given(
    st.lists(st.one_of(st.integers(0, 40), st.sampled_from(["take", "ask", "lose"])), max_size=60),
    st.integers(1, 60),
)
def test_what_waits_is_what_was_appended_and_not_taken(steps: list[int | str], window_rows: int) -> None:
    """Against a list of rows, with a network that loses every word after `lose` until the next `ask`."""
    flow = sender(Window(rows=window_rows, bytes=0, entries=1_000))
    receiver = FlowReceiver(life=(0, 1, 0), position=0)
    log: list[SentEntry] = []
    now_ms, broken = 0, False
    for step in [*steps, "take", "ask"]:
        now_ms += 1_000
        effects: list[object] = []
        if isinstance(step, int):
            if not flow.is_full:
                log.append(entry(len(log), rows=step))
                effects = list(flow.appended(log[-1], now_ms))
        elif step == "take":
            rows = sum(e.rows for e in log[receiver.position :])
            effects = list(receiver.taken(receiver.position, len(log), rows, rows))
        elif step == "ask":
            broken = False
            effects = list(flow.ticked(now_ms))
        else:
            broken = True
        while effects and not broken:
            effect = effects.pop()
            if isinstance(effect, SendAckRequest):
                seen = [log[number] for number in receiver.wanted(effect.request)]
                effects += receiver.requested(effect.request, seen, now_ms)
            else:
                assert isinstance(effect, SendAck)
                effects += flow.acknowledged(effect.ack, now_ms)
        flow.check()
        receiver.check()
        assert flow.position <= receiver.position
        assert flow.unacknowledged[0] == sum(e.rows for e in log[flow.position :])
    assert flow.unacknowledged == (0, 0, 0)
