"""The phi accrual detector: its formula, its start, and what it learns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.liveness.phi_detector import PhiAccrualDetector
from drivetrain.errors import ConfigError, InternalError


def phi_as_published(t: float, mean: float, std: float) -> float:
    """The two branches as they are usually written; overflows far from the mean."""
    y = (t - mean) / std
    e = math.exp(-y * (1.5976 + 0.070566 * y * y))
    return -math.log10(e / (1 + e)) if t > mean else -math.log10(1 - 1 / (1 + e))


def test_a_peer_that_never_sent_a_heartbeat_is_available() -> None:
    detector = PhiAccrualDetector()
    assert detector.phi(10**9) == 0.0
    assert detector.is_available(10**9)


def test_history_starts_with_the_estimate_plus_and_minus_a_quarter() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000)
    detector.heartbeat(0)
    assert detector.mean_ms == 1_000
    assert detector.std_ms == 250
    detector.heartbeat(1_300)
    assert detector.mean_ms == (750 + 1_250 + 1_300) / 3


@pytest.mark.parametrize("silence_ms", [0, 500, 999, 1_000, 1_001, 1_250, 1_500, 2_000])
def test_phi_is_the_published_formula(silence_ms: int) -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, acceptable_pause_ms=0)
    detector.heartbeat(10_000)
    expected = phi_as_published(silence_ms, 1_000, 250)
    assert detector.phi(10_000 + silence_ms) == pytest.approx(expected, rel=1e-9)


def test_the_acceptable_pause_moves_the_mean() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, acceptable_pause_ms=6_000)
    detector.heartbeat(0)
    assert detector.phi(7_000) == pytest.approx(math.log10(2)), "one half at the mean"


def test_the_peer_is_unavailable_exactly_from_the_threshold_on() -> None:
    other = PhiAccrualDetector(acceptable_pause_ms=0)
    other.heartbeat(0)
    detector = PhiAccrualDetector(acceptable_pause_ms=0, threshold=other.phi(1_500))
    detector.heartbeat(0)
    assert detector.is_available(1_499)
    assert not detector.is_available(1_500)


def test_the_standard_deviation_has_a_floor() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, min_std_ms=100, max_samples=10)
    for beat in range(50):
        detector.heartbeat(beat * 1_000)
    assert detector.std_ms == 100


def test_only_the_last_samples_count() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, max_samples=3)
    for now_ms in (0, 2_000, 4_000, 6_000):
        detector.heartbeat(now_ms)
        detector.check()
    assert detector.mean_ms == 2_000


def test_the_interval_of_a_pause_that_made_the_peer_unavailable_is_not_learnt() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, acceptable_pause_ms=3_000)
    detector.heartbeat(0)
    detector.heartbeat(1_000)
    mean_ms = detector.mean_ms
    assert not detector.is_available(60_000)
    detector.heartbeat(60_000)
    assert detector.mean_ms == mean_ms
    assert detector.is_available(60_000), "it is back, without being made anew"
    detector.heartbeat(61_000)
    assert detector.last_heartbeat_ms == 61_000
    detector.check()


def test_an_interval_within_the_pause_is_learnt() -> None:
    detector = PhiAccrualDetector(heartbeat_interval_ms=1_000, acceptable_pause_ms=6_000)
    detector.heartbeat(0)
    detector.heartbeat(5_000)
    assert detector.mean_ms > 1_000


def test_very_long_silence_neither_overflows_nor_divides_by_zero() -> None:
    detector = PhiAccrualDetector()
    detector.heartbeat(0)
    assert detector.phi(10**15) > 10**9
    early = PhiAccrualDetector(acceptable_pause_ms=10**12)
    early.heartbeat(0)
    assert early.phi(1) == 0.0


def test_a_heartbeat_from_the_past_raises_and_changes_nothing() -> None:
    detector = PhiAccrualDetector()
    detector.heartbeat(1_000)
    with pytest.raises(InternalError, match="999 ms"):
        detector.heartbeat(999)
    assert detector.last_heartbeat_ms == 1_000
    detector.check()


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold": 0.0},
        {"threshold": math.nan},
        {"heartbeat_interval_ms": 0},
        {"acceptable_pause_ms": -1},
        {"max_samples": 1},
        {"min_std_ms": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        PhiAccrualDetector(**bad)  # type: ignore[arg-type]


beats = st.lists(st.integers(0, 20_000), min_size=1, max_size=30)


@given(intervals_ms=beats, max_samples=st.integers(2, 8), threshold=st.floats(0.5, 16))
def test_what_it_learns_agrees_with_a_naive_history(
    intervals_ms: list[int], max_samples: int, threshold: float
) -> None:
    detector = PhiAccrualDetector(threshold=threshold, max_samples=max_samples, acceptable_pause_ms=2_000)
    detector.heartbeat(0)
    history, now_ms = [750, 1_250], 0
    for interval_ms in intervals_ms:
        now_ms += interval_ms
        if detector.phi(now_ms) < threshold:
            history = [*history, interval_ms][-max_samples:]
        detector.heartbeat(now_ms)
        detector.check()
        mean = sum(history) / len(history)
        std = math.sqrt(sum((ms - mean) ** 2 for ms in history) / len(history))
        assert detector.mean_ms == pytest.approx(mean)
        assert detector.std_ms == pytest.approx(max(std, 100.0))


@given(intervals_ms=beats, silence_ms=st.integers(0, 10**6), more_ms=st.integers(0, 10**6))
def test_suspicion_never_shrinks_while_the_peer_is_silent(
    intervals_ms: list[int], silence_ms: int, more_ms: int
) -> None:
    detector, now_ms = PhiAccrualDetector(), 0
    for interval_ms in intervals_ms:
        detector.heartbeat(now_ms := now_ms + interval_ms)
    assert detector.phi(now_ms + silence_ms) <= detector.phi(now_ms + silence_ms + more_ms)
