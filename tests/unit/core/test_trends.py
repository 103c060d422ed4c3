"""Trends: found in what rises through noise, and in nothing that only goes up and down."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.situation import FragmentSituation, Situation
from drivetrain.core.diagnosis.trends import LEAST_SPAN_MS, Point, trend_of
from drivetrain.core.job.fragment_figures import FragmentFigures
from drivetrain.core.job.history import STEP_MS, FragmentMoment, History, Moment
from nightly_run import examples

SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(31, 90)


def series(values: list[float], began_ms: int = 0) -> list[Point]:
    return [(began_ms + STEP_MS * n, value) for n, value in enumerate(values)]


@given(SEEDS, LENGTHS, st.floats(1, 1e9), st.floats(0.3, 5))
@settings(max_examples=examples(200), deadline=None)
def test_what_rises_through_noise_has_a_trend(seed: int, length: int, began: float, growth: float) -> None:
    random = Random(seed)
    noise = growth / 20
    values = [began * (1 + growth * n / length + random.uniform(-noise, noise)) for n in range(length)]
    found = trend_of(series(values))
    assert found is not None
    assert found.growth == pytest.approx(growth, rel=0.5)


@given(SEEDS, LENGTHS, st.floats(1, 1e9), st.floats(0, 1))
@settings(max_examples=examples(200), deadline=None)
def test_noise_around_a_level_has_none(seed: int, length: int, level: float, noise: float) -> None:
    random = Random(seed)
    assert trend_of(series([level * (1 + random.uniform(-noise, noise)) for _ in range(length)])) is None


@given(st.integers(2, 20), LENGTHS, st.integers(0, 19), st.floats(1, 1e9))
@settings(max_examples=examples(200), deadline=None)
def test_a_state_that_is_emptied_now_and_then_has_none(
    period: int, length: int, phase: int, height: float
) -> None:
    assert trend_of(series([height * ((n + phase) % period) for n in range(length)])) is None


@given(SEEDS, LENGTHS, st.floats(0, 1e9))
@settings(max_examples=examples(200), deadline=None)
def test_what_never_rises_has_none(seed: int, length: int, began: float) -> None:
    random, value, values = Random(seed), began, []
    for _ in range(length):
        value -= random.choice([0, 0, 1, 7])
        values.append(value)
    assert trend_of(series(values)) is None


@given(SEEDS, st.integers(31, 90), st.integers(0, 10**13))
@settings(max_examples=examples(100), deadline=None)
def test_a_few_wild_points_and_another_time_zero_change_nothing(
    seed: int, length: int, began_ms: int
) -> None:
    random = Random(seed)
    values = [1_000.0 + 10 * n for n in range(length)]
    calm = trend_of(series(values))
    values[random.randrange(length)] = random.choice([0.0, 1e12])
    wild = trend_of(series(values, began_ms))
    assert calm is not None
    assert wild is not None
    assert wild.per_s == pytest.approx(calm.per_s, rel=0.1)


def test_what_is_short_or_has_few_points_has_none() -> None:
    assert trend_of([]) is None
    assert trend_of(series([float(n) for n in range(LEAST_SPAN_MS // STEP_MS)])) is None
    assert trend_of([(n * LEAST_SPAN_MS, float(n)) for n in range(9)]) is None


def growing(fragment: FragmentSituation, figure: str, values: list[int], attempt: int = 1) -> Situation:
    moments = tuple(
        Moment(STEP_MS * n, fragments={fragment.id: FragmentMoment(attempt, **{figure: value})})
        for n, value in enumerate(values)
    )
    return Situation("s", fragments=(fragment,), history=History(moments))


RISING = [100_000 + 2_000 * n for n in range(60)]
LARGE = FragmentSituation("daily", figures=FragmentFigures(state_rows=RISING[-1], state_bytes=5_000_000))


def test_a_large_state_that_grows_is_named_and_a_small_one_is_not() -> None:
    (found,) = diagnose(growing(LARGE, "state_rows", RISING))
    assert (found.rule, found.subject) == ("state-grows", "daily")
    assert found.what == "its state has grown by 118 % in 9 min 50 s to 218,000 rows, and does not shrink"
    assert found.since_ms == 59 * STEP_MS
    small = replace(LARGE, figures=FragmentFigures(state_rows=500))
    assert diagnose(growing(small, "state_rows", RISING)) == ()
    assert diagnose(growing(LARGE, "state_rows", [RISING[-1]] * 60)) == ()


def test_only_the_present_attempt_counts() -> None:
    assert diagnose(growing(LARGE, "state_rows", RISING, attempt=2)) == ()


def test_input_that_comes_faster_than_it_is_processed() -> None:
    slow = FragmentSituation("daily", lag_rows=RISING[-1])
    (found,) = diagnose(growing(slow, "lag_rows", RISING))
    assert found.what == (
        "218,000 messages wait, 200 more each second: input comes faster than it is processed"
    )
    blocked = replace(slow, blocked_by="other")
    assert "falls-behind" not in {f.rule for f in diagnose(growing(blocked, "lag_rows", RISING))}


def test_a_disk_that_will_be_full_is_told_before_it_is() -> None:
    free = [50 * 2**30 - n * 2**28 for n in range(60)]
    history = History(tuple(Moment(STEP_MS * n, disk_free=f) for n, f in enumerate(free)))
    (found,) = diagnose(Situation("s", disk_free=free[-1], disk_total=100 * 2**30, history=history))
    assert found.what == (
        "only 37.8 GB (35 %) are free where its state directory is; at this rate it is full in 23 min 30 s"
    )
