from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.checkpoint.publication import Marker, Publication
from drivetrain.errors import InternalError, OutputError

OURS = Publication("me")


def test_a_batch_begins_is_committed_and_the_next_may_begin() -> None:
    first = OURS.began(0)
    assert first == Publication("me", -1, 0)
    assert first.committed(0) == Publication("me", 0)
    assert first.committed(0).began(3).committed(3) == Publication("me", 3)
    assert first.began(0) == first


@pytest.mark.parametrize(
    "illegal",
    [
        lambda p: p.began(4),
        lambda p: p.began(3),
        lambda p: p.began(5).began(6),
        lambda p: p.committed(5),
        lambda p: p.began(5).committed(6),
    ],
)
def test_an_illegal_event_raises(illegal) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InternalError):
        illegal(Publication("me", 4))


def test_a_marker_decides_and_without_one_the_note_does() -> None:
    unsure = Publication("me", 4, 5)
    assert unsure.resolved(Marker("me", 5), "t", "n") == Publication("me", 5)
    assert unsure.resolved(Marker("me", 4), "t", "n") == Publication("me", 4)
    assert Publication("me", 4).resolved(None, "t", "n") == Publication("me", 4)
    assert Publication("me", 4).resolved(Marker("me", -1), "t", "n") == Publication("me", 4)


def test_nobody_guesses() -> None:
    with pytest.raises(OutputError, match="is unknown whether batch 5") as caught:
        Publication("me", 4, 5).resolved(None, "topic", "/state/note.json")
    assert "/state/note.json" in str(caught.value.remedy)
    with pytest.raises(OutputError, match="another state directory"):
        OURS.resolved(Marker("another", 7), "topic", "note")


class World:
    """A target whose transactions are atomic, and a process that may die between any two steps."""

    def __init__(self, draw: random.Random, deaths: int) -> None:
        self.draw, self.deaths = draw, deaths
        self.note = Publication("me")
        self.marker: Marker | None = None
        self.seen: list[int] = []
        self.forgets = False

    def dies(self) -> bool:
        if self.deaths and self.draw.random() < 0.3:
            self.deaths -= 1
            return True
        return False

    def run(self, batches: int, first: int) -> int:
        """One life: recovers, then publishes from `first` on; the first batch that is to come again."""
        known = self.note.resolved(self.marker, "target", "note")
        known.check()
        if self.marker is None or self.marker.batch < known.published:
            self.marker = Marker("me", known.published)
        for batch in range(first, batches):
            if batch <= known.published:
                continue
            if self.dies():
                return batch
            known = self.note = known.began(batch)
            if self.dies():
                return batch
            committed = self.draw.random() < 0.8
            if committed:
                self.seen.append(batch)
                self.marker = Marker("me", batch)
            if self.dies() or not committed:
                return batch
            known = self.note = known.committed(batch)
            known.check()
            if self.forgets and self.draw.random() < 0.3:
                self.marker = None
            if self.dies():
                return batch
        return batches


@given(st.integers(0, 2**32), st.integers(0, 12), st.booleans())
def test_whatever_dies_every_batch_is_seen_once_and_in_order(seed: int, deaths: int, forgets: bool) -> None:
    world = World(random.Random(seed), deaths)
    world.forgets = forgets
    batch = 0
    while batch < 8:
        try:
            batch = world.run(8, batch)
        except OutputError:
            # The target forgot while it was not known how a transaction ended: somebody looked, and said so.
            assert forgets
            assert world.note.begun is not None
            known = max([world.note.published, *(b for b in world.seen if b == world.note.begun)])
            world.note = Publication("me", known)
    assert world.seen == list(range(8))
