"""When a subscriber that gathers messages begins its next batch."""

from __future__ import annotations

import random

import pytest

from drivetrain.core.channel.pace import Pace, Waiting
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS

PACE = Pace(interval_ms=10_000, entries=50, rows=0, bytes=1_000)


def waiting(
    entries: int = 1, rows: int = 1, bytes: int = 1, clock_ms: int = 0, is_all: bool = True
) -> Waiting:
    return Waiting(entries, rows, bytes, clock_ms, is_all)


def test_one_batch_begins_in_each_interval_of_the_wall_clock() -> None:
    planned: list[int] = []
    for now_ms in range(3_000, 45_000, 10):
        if PACE.is_due(waiting(), now_ms, planned[-1] if planned else None):
            planned.append(now_ms)
    assert planned == [3_000, 10_000, 20_000, 30_000, 40_000]


@pytest.mark.parametrize(
    "what",
    [
        waiting(entries=25),
        waiting(bytes=500),
        waiting(is_all=False),
        waiting(clock_ms=FINAL_CLOCK_MS),
        waiting(clock_ms=FINAL_CLOCK_MS - 1),
    ],
)
def test_nobody_is_held_back_by_the_interval(what: Waiting) -> None:
    assert PACE.is_due(what, now_ms=10_001, planned_ms=10_000)
    assert not PACE.is_due(waiting(entries=24, rows=10**9, bytes=499), now_ms=10_001, planned_ms=10_000)


def test_a_wall_clock_that_is_set_back_does_not_delay_the_next_batch() -> None:
    assert PACE.is_due(waiting(), now_ms=50_000, planned_ms=90_000)


@pytest.mark.parametrize("seed", range(20))
def test_a_producer_never_waits_for_the_interval(seed: int) -> None:
    """It waits when a window is full, and a batch takes all: half a window is left at any time."""
    draw = random.Random(seed)
    pace = Pace(draw.randint(100, 60_000), draw.randint(1, 50), draw.choice([0, 100]), draw.randint(2, 1_000))
    unread: list[tuple[int, int]] = []
    planned_ms: int | None = None
    for now_ms in range(0, 60_000, 10):
        if draw.random() < 0.3:
            unread.append((draw.randint(0, 10), draw.randint(0, 100)))
        rows, size = sum(r for r, _ in unread), sum(b for _, b in unread)
        if unread and pace.is_due(Waiting(len(unread), rows, size, 0, is_all=True), now_ms, planned_ms):
            unread, planned_ms = [], now_ms
            continue
        assert not unread or 2 * len(unread) < pace.entries, f"seed {seed}"
        assert not pace.rows or 2 * rows < pace.rows, f"seed {seed}"
        assert 2 * size < pace.bytes or not unread, f"seed {seed}"
        assert not unread or planned_ms is None or now_ms - planned_ms < pace.interval_ms, f"seed {seed}"
