"""Restart strategies against their definitions, and across processes."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.job.restarts import RestartKind, RestartPolicy, RestartStrategy
from drivetrain.errors import ConfigError

gaps = st.lists(st.integers(0, 5_000), max_size=40)


def strategy(kind: RestartKind, **settings: float) -> RestartStrategy:
    return RestartStrategy(RestartPolicy(kind, **settings), random.Random(0))  # type: ignore[arg-type]


def test_none_never_restarts() -> None:
    assert RestartStrategy(RestartPolicy(RestartKind.NONE), random.Random(0)).next_delay_ms(0) is None


def test_fixed_delay_gives_n_restarts_and_failure_n_plus_1_is_fatal() -> None:
    fixed = strategy(RestartKind.FIXED_DELAY, attempts=3, delay_ms=70)
    assert [fixed.next_delay_ms(t) for t in range(5)] == [70, 70, 70, None, None]


@given(gaps, st.integers(1, 4))
def test_a_failure_rate_is_fatal_when_failure_n_plus_1_is_within_the_interval(
    waits: list[int], attempts: int
) -> None:
    rate = strategy(RestartKind.FAILURE_RATE, attempts=attempts, delay_ms=9, interval_ms=6_000)
    times: list[int] = []
    now = 0
    for wait in waits:
        now += wait
        times.append(now)
        recent = [t for t in times if now - t <= 6_000]
        assert rate.next_delay_ms(now) == (None if len(recent) > attempts else 9)
        rate.check()


@given(gaps, st.integers(0, 5))
def test_exponential_without_jitter_follows_the_formula(waits: list[int], attempts: int) -> None:
    settings = {"attempts": attempts, "delay_ms": 100, "multiplier": 2.0, "maximum_ms": 900, "jitter": 0.0}
    exponential = strategy(RestartKind.EXPONENTIAL, **settings, reset_after_ms=3_000)
    now = due = row = 0
    for wait in waits:
        now += wait
        if row and now - due >= 3_000:
            row = 0
        expected = None if attempts and row >= attempts else min(900, 100 * 2**row)
        assert exponential.next_delay_ms(now) == expected
        if expected is not None:
            row, due = row + 1, max(due, now + expected)
        exponential.check()


@given(st.integers(0, 2**32))
def test_jitter_stays_within_its_share_and_below_the_maximum(seed: int) -> None:
    policy = RestartPolicy(attempts=0, delay_ms=1_000, maximum_ms=60_000, jitter=0.1)
    exponential = RestartStrategy(policy, random.Random(seed))
    for n in range(20):
        base = min(60_000, 1_000 * 1.5**n)
        delay = exponential.next_delay_ms(0)
        assert delay is not None
        assert 0.9 * base - 1 <= delay <= min(60_000, 1.1 * base + 1)


@pytest.mark.parametrize("kind", RestartKind)
@given(waits=gaps, cut=st.integers(0, 40))
def test_a_new_process_goes_on_counting(kind: RestartKind, waits: list[int], cut: int) -> None:
    policy = RestartPolicy(kind, attempts=3, delay_ms=50, jitter=0.0, reset_after_ms=4_000, interval_ms=4_000)
    one, other = (RestartStrategy(policy, random.Random(0)) for _ in range(2))
    now = 0
    for number, wait in enumerate(waits):
        now += wait
        if number == cut:
            saved = json.loads(json.dumps(other.saved()))  # plain data
            other = RestartStrategy.restored(policy, random.Random(1), saved)
        assert one.next_delay_ms(now) == other.next_delay_ms(now)


def test_what_another_version_saved_counts_as_nothing() -> None:
    policy = RestartPolicy(RestartKind.FIXED_DELAY, attempts=1)
    odd = {"restarts": "many", "base_ms": [], "due_ms": None, "times_ms": "12"}
    restored = RestartStrategy.restored(policy, random.Random(0), odd)
    restored.check()
    assert restored.next_delay_ms(0) is not None


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": -1}, {"multiplier": 0.5}, {"maximum_ms": 5}, {"jitter": 2.0}, {"interval_ms": 0}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        RestartPolicy(**wrong)  # type: ignore[arg-type]
