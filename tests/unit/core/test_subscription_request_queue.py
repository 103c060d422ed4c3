"""Which subscriptions an application begins, ends or refuses: events in, effects out."""

from __future__ import annotations

import pytest

from drivetrain.core.change.graph_version import SubscriptionRecord
from drivetrain.core.change.subscription_request_queue import (
    PATIENCE,
    ChangeApplied,
    ChangeRefused,
    DropRequest,
    ReportRefusal,
    RequestChange,
    RequestsRead,
    SubscriptionRequestQueue,
    WantedSubscription,
)
from drivetrain.errors import InternalError

HOURS = SubscriptionRecord("report-1.hours", "hourly", "report-1", "hours", "k1")
MARKS = SubscriptionRecord("report-1.marks", "mark", "report-1", "marks", "k2")


def asks(beat: int, of: SubscriptionRecord = HOURS) -> WantedSubscription:
    return WantedSubscription(of, beat)


def test_a_reader_that_goes_on_asking_gets_its_subscription_once() -> None:
    desk = SubscriptionRequestQueue()
    assert desk.step(RequestsRead((asks(3),), ())) == []
    assert desk.step(RequestsRead((asks(3),), ())) == [], "it may have died"
    assert desk.step(RequestsRead((asks(4),), ())) == [RequestChange(asks(4))]
    assert desk.step(RequestsRead((asks(5),), ())) == [], "its change is under way"
    assert desk.step(ChangeApplied()) == []
    assert desk.step(RequestsRead((asks(6),), (HOURS,))) == [], "it is in force"


def test_another_desk_does_not_take_the_beats_of_a_dead_reader_for_life() -> None:
    assert SubscriptionRequestQueue().step(RequestsRead((asks(9),), ())) == []


def test_one_change_is_made_at_a_time() -> None:
    desk = SubscriptionRequestQueue()
    both = (asks(0), asks(0, MARKS))
    later = (asks(1), asks(1, MARKS))
    assert desk.step(RequestsRead(both, ())) == []
    assert desk.step(RequestsRead(later, ())) == [RequestChange(asks(1))]
    desk.step(ChangeApplied())
    assert desk.step(RequestsRead(later, (HOURS,))) == [RequestChange(asks(1, MARKS))]


def test_what_cannot_be_done_now_is_tried_again_a_while_later() -> None:
    desk = SubscriptionRequestQueue()
    desk.step(RequestsRead((asks(0),), ()))
    assert desk.step(RequestsRead((asks(1),), ())) == [RequestChange(asks(1))]
    assert desk.step(ChangeRefused(for_good=False)) == []
    tries = [desk.step(RequestsRead((asks(n),), ())) for n in range(2, 2 + PATIENCE)]
    assert tries == [[]] * (PATIENCE - 1) + [[RequestChange(asks(1 + PATIENCE))]]


def test_a_refusal_is_told_and_the_request_rests() -> None:
    desk = SubscriptionRequestQueue()
    desk.step(RequestsRead((asks(0),), ()))
    desk.step(RequestsRead((asks(1),), ()))
    assert desk.step(ChangeRefused(for_good=True)) == [ReportRefusal(asks(1))]
    refused = frozenset({(HOURS.id, HOURS.key)})
    assert desk.step(RequestsRead((asks(2),), (), refused)) == []


def test_a_subscription_ends_without_a_second_request_and_is_then_forgotten() -> None:
    desk, ends = SubscriptionRequestQueue(), WantedSubscription(HOURS, ends=True)
    assert desk.step(RequestsRead((ends,), (HOURS,))) == [RequestChange(ends)]
    desk.step(ChangeApplied())
    assert desk.step(RequestsRead((ends,), ())) == [DropRequest(ends)]
    assert desk.step(RequestsRead((ends,), (HOURS_WITH_ANOTHER_KEY,))) == [DropRequest(ends)]


HOURS_WITH_ANOTHER_KEY = SubscriptionRecord("report-1.hours", "hourly", "report-1", "hours", "k9")


def test_an_answer_that_nobody_asked_for_is_a_defect() -> None:
    for answer in (ChangeApplied(), ChangeRefused(for_good=True)):
        with pytest.raises(InternalError, match="invariant 1"):
            SubscriptionRequestQueue().step(answer)


def test_a_request_that_counts_back_is_a_defect() -> None:
    desk = SubscriptionRequestQueue()
    desk.step(RequestsRead((asks(0),), ()))
    desk.step(RequestsRead((asks(5),), ()))
    desk.check([asks(6)])
    with pytest.raises(InternalError, match="invariant 2"):
        desk.check([asks(2)])


@pytest.mark.parametrize(
    "record",
    [
        SubscriptionRecord("../x.hours", "hourly", "../x", "hours", "k"),
        SubscriptionRecord("report-1.hours", "../hourly", "report-1", "hours", "k"),
        SubscriptionRecord("report-1.hours", "hourly", "report-1", "marks", "k"),
        SubscriptionRecord("report-1.hours", "hourly", "report-1", "hours", ""),
    ],
)
def test_names_that_are_no_names_of_files_are_known(record: SubscriptionRecord) -> None:
    assert not record.is_well_named
    assert HOURS.is_well_named
