"""Registering with a leader: the reference's times, and what is late or doubled changes nothing."""

from __future__ import annotations

import random

import pytest

from drivetrain.core.cluster.registration import (
    FIRST_TIMEOUT_MS,
    LAST_TIMEOUT_MS,
    REFUSED_DELAY_MS,
    Accepted,
    End,
    Event,
    LeaderFound,
    LeaderLost,
    Refused,
    Register,
    Registered,
    Registration,
    RegistrationState,
    Tick,
)
from drivetrain.errors import InternalError


def wake(core: Registration) -> int:
    assert core.wake_ms is not None
    return core.wake_ms


def test_the_first_timeout_is_500_ms_and_doubles_to_30_s() -> None:
    core, now = Registration(None, 0), 0
    (first,) = core.step(LeaderFound("a"), now)
    assert first == Register(1, "a", 500)
    timeouts = []
    for _ in range(9):
        now = wake(core)
        assert core.step(Tick(), now - 1) == []
        (effect,) = core.step(Tick(), now)
        assert isinstance(effect, Register)
        timeouts.append(effect.timeout_ms)
    assert timeouts == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000]
    assert now == sum([500, *timeouts[:-1]])


def test_a_refusal_waits_10_s_and_starts_over() -> None:
    core = Registration(None, 0)
    core.step(LeaderFound("a"), 0)
    core.step(Tick(), 500)
    assert core.step(Refused(2, "another version"), 600) == []
    assert (core.state, core.refusal, wake(core)) == (RegistrationState.REFUSED, "another version", 10_600)
    assert core.step(Tick(), 10_600) == [Register(3, "a", 500)]


def test_a_late_refusal_is_ignored() -> None:
    core = Registration(None, 0)
    core.step(LeaderFound("a"), 0)
    core.step(Tick(), 500)
    assert core.step(Refused(1, "late"), 600) == []
    assert core.state is RegistrationState.REGISTERING
    assert core.step(Accepted(2), 700) == [Registered("a")]
    assert core.step(Refused(2, "later still"), 800) == []
    assert core.is_registered


def test_a_late_acceptance_counts_for_the_same_leader_only() -> None:
    core = Registration(None, 0)
    core.step(LeaderFound("a"), 0)
    core.step(Tick(), 500)
    assert core.step(LeaderFound("b"), 600) == [Register(3, "b", 500)]
    assert core.step(Accepted(2), 650) == []
    core.step(Tick(), 1_100)
    assert core.step(Accepted(3), 1_200) == [Registered("b")]
    assert core.step(Accepted(4), 1_300) == []


def test_an_acceptance_after_a_refusal_of_the_same_leader_counts() -> None:
    core = Registration(None, 0)
    core.step(LeaderFound("a"), 0)
    core.step(Tick(), 500)
    core.step(Refused(2, "busy"), 600)
    assert core.step(Accepted(1), 700) == [Registered("a")]
    assert core.refusal is None


def test_losing_the_leader_starts_over_with_the_next() -> None:
    core = Registration(None, 0)
    core.step(LeaderFound("a"), 0)
    core.step(Accepted(1), 10)
    assert core.step(LeaderLost(), 20) == []
    assert core.wake_ms is None
    assert core.step(Accepted(1), 30) == []
    assert core.step(LeaderFound("b"), 40) == [Register(2, "b", 500)]


def test_the_maximum_duration_ends_it_with_the_refusal_and_counts_from_the_loss() -> None:
    core = Registration(30_000, 0)
    core.step(LeaderFound("a"), 100)
    core.step(Accepted(1), 29_999)
    assert core.wake_ms is None
    core.step(LeaderLost(), 50_000)
    assert wake(core) == 80_000
    core.step(LeaderFound("b"), 79_000)
    core.step(Refused(2, "a name in use"), 79_100)
    assert core.step(Tick(), 80_000) == [End(30_000, "a name in use")]
    with pytest.raises(InternalError):
        core.step(Tick(), 80_001)


def test_illegal_steps_raise_and_change_nothing() -> None:
    core = Registration(None, 100)
    for event, now in ((Tick(), 99), (Accepted(1), 100), (Refused(1, "?"), 100)):
        with pytest.raises(InternalError):
            core.step(event, now)
    assert core.step(LeaderFound("a"), 100) == [Register(1, "a", 500)]
    with pytest.raises(InternalError):
        core.step(Accepted(2), 200)
    assert core.step(Accepted(1), 200) == [Registered("a")]


@pytest.mark.parametrize("seed", range(200))
def test_random_events_keep_the_invariants_and_end_in_time(seed: int) -> None:
    rng = random.Random(seed)
    maximum_ms = rng.choice([None, 5_000, 60_000])
    core, now, attempts = Registration(maximum_ms, 0), 0, 0
    unregistered_ms: int | None = 0
    for _ in range(300):
        deadline = core.wake_ms
        now = deadline if deadline is not None and rng.random() < 0.5 else now + rng.randrange(0, 5_000)
        if deadline is not None:
            now = min(now, max(deadline, now - 5_000))
        answered = rng.randint(1, attempts) if attempts else 0
        choices: list[Event] = [LeaderFound(rng.choice("ab")), LeaderLost(), Tick(), Tick()]
        if answered:
            choices += [Accepted(answered), Refused(answered, "no"), Accepted(attempts)]
        effects = core.step(rng.choice(choices), now)
        core.check()
        for effect in effects:
            if isinstance(effect, Register):
                attempts += 1
                assert effect.attempt == attempts
                assert FIRST_TIMEOUT_MS <= effect.timeout_ms <= LAST_TIMEOUT_MS
                assert core.wake_ms is not None
                assert core.wake_ms <= now + effect.timeout_ms
            elif isinstance(effect, End):
                assert maximum_ms is not None
                assert unregistered_ms is not None
                assert effect.unregistered_ms == now - unregistered_ms >= maximum_ms
                return
        if core.is_registered:
            unregistered_ms = None
        elif unregistered_ms is None:
            unregistered_ms = now
        if core.state is RegistrationState.REFUSED:
            assert core.wake_ms is not None
            assert core.wake_ms <= now + REFUSED_DELAY_MS
