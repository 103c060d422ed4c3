"""Who is declared dead, and when."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.actor.path import Address
from drivetrain.actor.remote.backoff import Backoff
from drivetrain.actor.remote.monitor import DeclareDead, HeartbeatMonitor, SendHeartbeat
from drivetrain.core.liveness.phi_detector import PhiAccrualDetector

PEER = Address("p", "h", 1, 1)
INTERVAL_MS = 100
PAUSE_MS = 1_000


def monitor() -> HeartbeatMonitor:
    return HeartbeatMonitor(
        INTERVAL_MS,
        PAUSE_MS,
        lambda: PhiAccrualDetector(heartbeat_interval_ms=INTERVAL_MS, acceptable_pause_ms=PAUSE_MS),
    )


def test_a_heartbeat_goes_out_at_every_tick_with_a_new_count() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    assert watching.tick(100) == [SendHeartbeat(PEER, 1)]
    assert watching.tick(200) == [SendHeartbeat(PEER, 2)]
    watching.forget(PEER)
    assert watching.tick(300) == []


def test_a_peer_that_never_answers_is_declared_dead_once() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    effects = [effect for now_ms in range(0, 10_000, INTERVAL_MS) for effect in watching.tick(now_ms)]
    dead = [effect for effect in effects if isinstance(effect, DeclareDead)]
    assert len(dead) == 1
    assert PAUSE_MS < dead[0].silent_ms < 3 * PAUSE_MS
    assert not watching.is_watching(PEER)


@given(st.lists(st.integers(1, PAUSE_MS), min_size=1, max_size=40))
def test_a_peer_that_answers_within_the_pause_is_never_declared_dead(gaps_ms: list[int]) -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    answers_ms = []
    now_ms = 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        answers_ms.append(now_ms)
    count = 0
    for at_ms in range(answers_ms[-1] + 1):
        if at_ms % INTERVAL_MS == 0:
            for effect in watching.tick(at_ms):
                assert isinstance(effect, SendHeartbeat)
                count = effect.count
        if at_ms in answers_ms:
            watching.answered(PEER, count, at_ms)


def test_answers_that_are_old_doubled_or_made_up_count_for_nothing() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    declared = False
    for now_ms in range(0, 5_000, INTERVAL_MS):
        declared = declared or any(isinstance(effect, DeclareDead) for effect in watching.tick(now_ms))
        watching.answered(PEER, 1, now_ms)
        watching.answered(PEER, 10**6, now_ms)
    assert declared


def test_after_a_stall_of_our_own_verdicts_rest_for_a_pause() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    watching.tick(100)
    watching.answered(PEER, 1, 100)
    # Frozen for a minute: everybody seems silent, also those whose answers wait in our buffers.
    assert watching.tick(60_000) == [SendHeartbeat(PEER, 2)]
    watching.answered(PEER, 2, 60_001)
    for now_ms in range(60_100, 70_000, INTERVAL_MS):
        (effect,) = watching.tick(now_ms)
        assert isinstance(effect, SendHeartbeat)
        watching.answered(PEER, effect.count, now_ms)


def test_a_stall_before_the_first_tick_is_a_stall_too() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    assert watching.tick(60_000) == [SendHeartbeat(PEER, 1)]


def test_an_acknowledgement_is_a_sign_of_life() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    for now_ms in range(0, 5_000, INTERVAL_MS):
        watching.acknowledged(PEER, now_ms)
        watching.tick(now_ms)
    assert watching.is_watching(PEER)


def test_a_peer_that_died_during_our_stall_is_declared_dead_a_pause_later() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    watching.tick(100)
    watching.tick(60_000)
    effects = [effect for now_ms in range(60_100, 70_000, INTERVAL_MS) for effect in watching.tick(now_ms)]
    assert sum(isinstance(effect, DeclareDead) for effect in effects) == 1


def test_a_handshake_is_a_sign_of_life() -> None:
    watching = monitor()
    watching.watch(PEER, 0)
    for now_ms in range(0, 1_900, INTERVAL_MS):
        watching.tick(now_ms)
        if now_ms == 1_000:
            watching.greeted(PEER, now_ms)
    assert watching.is_watching(PEER)


def test_delays_double_up_to_the_most_and_start_over() -> None:
    backoff = Backoff(100, 1_000, Random(1))
    delays = [backoff.next_delay_s() * 1_000 for _ in range(8)]
    for delay, full in zip(delays, [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000], strict=True):
        assert full / 2 <= delay <= full
    backoff.succeeded()
    assert backoff.next_delay_s() <= 0.1
