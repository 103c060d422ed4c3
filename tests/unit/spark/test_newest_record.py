"""The newest timestamps of a fragment's inputs, as a query that starts finds them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from drivetrain.errors import InputError
from drivetrain.spark.batch.newest_record import FILE, NewestRecord, NewestTimestamps


def of(ms: int) -> dict[str, NewestTimestamps]:
    return {"timed": NewestTimestamps(ms, {0: ms, 7: ms - 5})}


def test_nothing_is_known_before_the_first_batch(tmp_path: Path) -> None:
    assert NewestRecord(tmp_path).read(-1) == {}
    NewestRecord(tmp_path).note(0, of(10))
    assert NewestRecord(tmp_path).read(-1) == {}


def test_a_batch_that_was_not_committed_is_not_read(tmp_path: Path) -> None:
    record = NewestRecord(tmp_path)
    record.note(3, of(10))
    record.note(4, of(20))
    assert NewestRecord(tmp_path).read(3) == of(10)
    assert NewestRecord(tmp_path).read(4) == of(20)


def test_a_batch_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    record = NewestRecord(tmp_path)
    record.note(3, of(10))
    (tmp_path / FILE).unlink()
    record.note(4, of(10))
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_noted_and_killed_is_read_as_of_the_last_committed_batch(
    tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)
    model: dict[int, int] = {-1: 0}
    committed, ms = -1, 0
    record = NewestRecord(tmp_path)
    for _ in range(60):
        ms += random_.choice((0, 0, 1, 5))
        model[committed + 1] = ms
        record.note(committed + 1, of(ms))
        if random_.random() < 0.7:
            committed += 1
        if random_.random() < 0.4:
            record = NewestRecord(tmp_path)
            known = record.read(committed)
            assert (known or of(0)) == of(model[committed]), f"seed {seed}"
            ms = model[committed]  # a query that starts again knows no more


def test_a_damaged_record_is_not_believed_and_says_what_to_do(tmp_path: Path) -> None:
    NewestRecord(tmp_path).note(0, of(10))
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace("10", "11"))
    with pytest.raises(InputError, match="newest timestamps") as refused:
        NewestRecord(tmp_path).read(0)
    assert "delete the file" in str(refused.value.remedy)
