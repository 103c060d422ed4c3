"""How far in time the messages of a fragment have come, known also after a crash."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from drivetrain.errors import InputError
from drivetrain.spark.batch.newest_bound import AHEAD_MS, FILE, NewestBound


def test_in_one_process_it_is_exact_and_after_a_crash_it_lies_a_little_ahead(tmp_path: Path) -> None:
    bound = NewestBound(tmp_path)
    assert bound.bound_ms is None
    bound.observe(5_000)
    bound.observe(4_000)
    assert bound.bound_ms == 5_000
    assert NewestBound(tmp_path).bound_ms == 5_000 + AHEAD_MS


def test_it_is_written_only_when_a_message_lies_beyond_it(tmp_path: Path) -> None:
    bound, file = NewestBound(tmp_path), tmp_path / FILE
    bound.observe(0)
    written = file.stat().st_mtime_ns
    bound.observe(AHEAD_MS)
    assert file.stat().st_mtime_ns == written
    bound.observe(AHEAD_MS + 1)
    assert NewestBound(tmp_path).bound_ms == 2 * AHEAD_MS + 1


def test_no_message_lies_beyond_it_however_often_the_process_dies(tmp_path: Path) -> None:
    random, bound, newest_ms = Random(7), NewestBound(tmp_path), -(10**15)
    for _ in range(200):
        if random.random() < 0.2:
            bound = NewestBound(tmp_path)
        ms = random.randrange(-(10**6), 10**6)
        newest_ms = max(newest_ms, ms)
        bound.observe(ms)
        assert bound.bound_ms is not None
        assert newest_ms <= bound.bound_ms <= newest_ms + AHEAD_MS


def test_a_damaged_bound_is_an_error_and_not_a_guess(tmp_path: Path) -> None:
    NewestBound(tmp_path).observe(5)
    (tmp_path / FILE).write_text("5 00000000\n")
    with pytest.raises(InputError, match="how far in time"):
        _ = NewestBound(tmp_path).bound_ms
