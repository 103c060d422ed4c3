"""Attempts are repeated at growing intervals, and for a limited time."""

from __future__ import annotations

import pytest

from drivetrain.runtime import growing_pauses
from drivetrain.runtime.growing_pauses import GrowingPauses


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_each_pause_is_twice_the_one_before_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(growing_pauses, "time", clock)
    pauses = GrowingPauses(20, first_s=0.5, longest_s=3)
    while not pauses.are_over:
        pauses.wait()
    assert clock.slept == [0.5, 1, 2, 3, 3, 3, 3, 3]
    assert clock.now_s == 118.5


def test_time_that_attempts_take_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(growing_pauses, "time", clock)
    pauses = GrowingPauses(10, first_s=1, longest_s=4)
    assert not pauses.are_over
    clock.now_s += 9
    assert not pauses.are_over
    clock.now_s += 0.5
    assert pauses.are_over
