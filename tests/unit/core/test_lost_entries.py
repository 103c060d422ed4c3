"""Lost entries of a channel: what was in them follows from the entries around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.channel.channel_log import Entry, Segment
from drivetrain.core.channel.lost_entries import lost_batches
from drivetrain.errors import InternalError

SEGMENT = Segment("segments/x", 1, 1, 0, 0, 0)


def entry(number: int, batch_id: int, *, rows: bool = True) -> Entry:
    return Entry(number, "p", 0, batch_id, (SEGMENT,) if rows else (), 0)


def test_a_lost_entry_between_two_batches_is_the_batch_between_them() -> None:
    assert lost_batches([1], entry(0, 0), entry(2, 2)) == {1: 1}


def test_a_lost_entry_between_neighbouring_batches_only_moved_the_clock() -> None:
    assert lost_batches([1], entry(0, 0), entry(2, 1)) == {1: None}


def test_a_clock_behind_the_gap_may_be_that_of_the_lost_batch() -> None:
    assert lost_batches([1], entry(0, 0), entry(2, 1, rows=False)) == {1: 1}


def test_at_the_end_of_the_log_the_producers_checkpoint_says_what_is_lost() -> None:
    assert lost_batches([3, 4], entry(2, 2), None, committed=4) == {3: 3, 4: 4}
    assert lost_batches([3, 4], entry(2, 2), None, committed=3) == {3: 3, 4: None}


def test_a_fragment_that_is_silent_until_its_end_lost_its_last_batch() -> None:
    assert lost_batches([0], None, entry(1, 8, rows=False)) == {0: 7}
    assert lost_batches([0], None, None, committed=7) == {0: 7}


def test_entries_that_are_not_neighbours_are_refused() -> None:
    with pytest.raises(InternalError, match="do not follow"):
        lost_batches([2], entry(0, 0), entry(3, 3))
    with pytest.raises(InternalError, match="does not follow"):
        lost_batches([1], entry(0, 0), entry(3, 3))


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """A log of batches, with or without messages, and moves of the clock among them."""
    made: list[Entry] = []
    batch = -1
    for kind in draw(st.lists(st.sampled_from(["rows", "empty", "clock"]), min_size=1, max_size=12)):
        batch += kind != "clock"
        made.append(entry(len(made), batch, rows=kind == "rows"))
    return made


@given(log=logs(), data=st.data())
def test_whatever_is_lost_every_message_is_made_once(log: list[Entry], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(log) - 1))
    end = data.draw(st.integers(first + 1, len(log)))
    lost = list(range(first, end))
    before = log[first - 1] if first else None
    after = log[end] if end < len(log) else None
    placed = lost_batches(lost, before, after, committed=log[-1].batch_id)
    with_messages = {e.batch_id for e in log if e.segments}
    kept = {e.batch_id for e in log if e.segments and e.number not in lost}
    made = [batch for batch in placed.values() if batch is not None]
    assert list(placed) == lost
    assert made == sorted(set(made))
    assert {b for b in made if b in with_messages} == with_messages - kept
