"""Which MQTT messages are duplicates, and when they are acknowledged."""

from __future__ import annotations

from drivetrain.connectors.mqtt.deliveries import Deliveries


def test_a_message_is_due_when_it_is_stored_and_open_until_it_is_acknowledged() -> None:
    at = Deliveries(10)
    assert [at.received(id, again=False) for id in (7, None, 8)] == [True, True, True]
    assert at.due == ()
    at.stored(11)
    assert at.due == (7,)
    at.stored(12)  # the one that needs no acknowledgement
    assert at.due == (7,)
    at.stored(13)
    assert at.due == (7, 8)
    at.acknowledged(7)
    assert at.received(7, again=False), "the broker may use the identifier again"
    assert at.due == (8,)
    at.check()


def test_what_waits_here_and_comes_again_is_a_duplicate_in_the_same_session_only() -> None:
    at = Deliveries(0)
    at.received(1, again=False)
    at.received(2, again=False)
    at.stored(1)
    at.connected(has_session=True)
    assert at.due == (), "the acknowledgement must not overtake the message that comes again"
    assert [at.received(id, again=id < 3) for id in (1, 2, 3)] == [False, False, True]
    assert at.due == (1,), "it is acknowledged in the new connection"
    at.connected(has_session=False)
    assert at.due == ()
    assert at.received(2, again=True)
    at.stored(3)
    assert at.due == (), "old messages have no identifier in the new session"
    at.stored(4)
    assert at.due == (2,)
    at.check()


def test_an_identifier_that_the_broker_gives_to_another_message_is_no_duplicate() -> None:
    at = Deliveries(0)
    for id in (1, 2):
        at.received(id, again=False)
    at.stored(1)
    at.connected(has_session=True)
    assert [at.received(id, again=False) for id in (1, 2)] == [True, True], "the old ones had expired"
    assert at.due == ()
    at.stored(3)
    assert at.due == (1,)
    at.check()
