"""The places of fragments that start or have left while an application runs, and beginnings of channels."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.core.checkpoint.barriers import NO_LIFE
from drivetrain.errors import InputError
from drivetrain.runtime.channel.beginning import BeginningRecord, ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.fragment_lives import FragmentLives
from drivetrain.runtime.fragment_places import FragmentPlaces


def planned(home: Path, fragment: str, batch: int) -> None:
    offsets = home / "fragments" / fragment / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).touch()


def test_no_batch_of_a_fragment_has_a_number_that_one_of_its_name_had(tmp_path: Path) -> None:
    places = FragmentPlaces(tmp_path, tmp_path, 100)
    planned(tmp_path, "read", 7)
    assert places.first_batch("read") == 100
    places.prepare("late", ["read--late"], [])
    assert places.first_batch("late") == 109, "one more than Spark numbers may be shown at the end"
    planned(tmp_path, "late", 30)
    places.delete("late", ["read--late"], [])
    assert not (tmp_path / "fragments" / "late").exists()
    assert not (tmp_path / "channels" / "read--late").exists()
    places.prepare("late", ["read--late"], [])
    assert places.first_batch("late") == 141
    assert places.last_number() == 141


def test_a_fragment_that_starts_finds_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    places = FragmentPlaces(tmp_path, tmp_path, 0)
    for left in ("fragments/late/sources", "channels/c/log", "stores/more", "sources/more"):
        (tmp_path / left).mkdir(parents=True)
    places.prepare("late", ["c"], ["more"])
    assert [path.name for path in (tmp_path / "fragments" / "late").iterdir()] == ["first-batch"]
    assert [path.name for path in (tmp_path / "channels" / "c").iterdir()] == ["begins"]
    assert not any((tmp_path / "stores").iterdir())
    assert not any((tmp_path / "sources").iterdir())


def test_a_fragment_of_a_name_that_has_left_has_not_begun(tmp_path: Path) -> None:
    """Or its state, which it does not have yet, would be taken for lost."""
    places, lives = FragmentPlaces(tmp_path, tmp_path, 0), FragmentLives(tmp_path)
    places.prepare("late", [], [])
    for fragment in ("late", "other"):
        lives.note(fragment, 1)
    places.delete("late", [], [])
    places.prepare("late", [], [])
    assert lives.newest("late") == NO_LIFE
    assert lives.newest("other") == 1


def test_a_damaged_number_is_refused(tmp_path: Path) -> None:
    places = FragmentPlaces(tmp_path, tmp_path, 0)
    places.prepare("late", [], [])
    (tmp_path / "fragments" / "late" / "first-batch").write_text("12 00000000\n")
    with pytest.raises(InputError, match="cannot be read"):
        places.first_batch("late")


def test_a_channel_begins_once_behind_a_batch_with_the_clock_of_its_producer(tmp_path: Path) -> None:
    begins, store = ChannelBeginning(str(tmp_path)), ChannelStore(str(tmp_path), fragment="read")
    assert not begins.is_late
    assert begins.read() is None
    assert not begins.is_open(store, 5), "the channels of an application's start have every batch"
    begins.prepare()
    assert begins.is_open(store, 5)
    begins.begin(store, 5, 1_000, 1_300)
    assert begins.read() == BeginningRecord(5, 1_300)
    assert not begins.is_open(store, 5)
    entry = store.last()
    assert entry is not None
    assert (entry.batch_id, entry.clock_ms, entry.segments) == (5, 1_000, ())
    begins.begin(store, 9, 9_000, 9_300)
    assert begins.read() == BeginningRecord(5, 1_300), "it has begun"
    assert store.length() == 1


def test_a_channel_whose_first_entry_is_missing_after_a_crash_gets_it(tmp_path: Path) -> None:
    begins, store = ChannelBeginning(str(tmp_path)), ChannelStore(str(tmp_path), fragment="read")
    begins.prepare()
    begins.begin(store, 5, 1_000, None)
    store.cut(0)
    assert begins.is_open(store, 5)
    assert not begins.is_open(store, 6), "batch 6 must have an entry"
    begins.begin(store, 5, 1_000, None)
    assert store.last_batch() == 5


def test_a_channel_that_begins_with_its_producers_first_batch_needs_no_entry(tmp_path: Path) -> None:
    begins, store = ChannelBeginning(str(tmp_path)), ChannelStore(str(tmp_path), fragment="read")
    begins.prepare()
    begins.begin(store, -1, None, None)
    assert store.length() == 0
    assert begins.read() == BeginningRecord(-1, None)
