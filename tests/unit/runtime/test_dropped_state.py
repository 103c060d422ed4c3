"""A checkpoint whose state is dropped, and given back, with deaths between any two changes of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from failing_disk import failing

from drivetrain.errors import OutputError
from drivetrain.runtime.state import dropped_state
from drivetrain.runtime.state.dropped_state import DroppedRecord, DroppedState, settle_checkpoints

PARTITIONS = 2


class DeathError(BaseException):
    """The process dies."""


def checkpoint(own: Path, batches: int) -> None:
    """What Spark has after so many batches: a state with a snapshot, and changes since."""
    place = own / "checkpoint"
    for log in ("offsets", "commits"):
        (place / log).mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_text("query")
    for batch in range(batches):
        commit(own, batch)


def commit(own: Path, batch: int) -> None:
    place = own / "checkpoint"
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(PARTITIONS)}})
    (place / "offsets" / str(batch)).write_text(f"v1\n{conf}\n{batch}")
    (place / "commits" / str(batch)).write_text("v1\n{}")
    for partition in range(PARTITIONS):
        store = place / "state" / "0" / str(partition)
        store.mkdir(parents=True, exist_ok=True)
        (store / f"{batch + 1}.changelog").write_text(f"changes of batch {batch}")


def content(place: Path) -> dict[str, str]:
    return {str(p.relative_to(place)): p.read_text() for p in sorted(place.rglob("*")) if p.is_file()}


@contextmanager
def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Die before the change of files with this number: a rename, a link, or a deletion."""
    left = step

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise DeathError
            return real(*given, **named)

        return call

    with monkeypatch.context() as patched:
        for name in ("rename", "link", "unlink", "rmdir", "replace"):
            patched.setattr(os, name, counted(getattr(os, name)))
        yield


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    snapshot, changes = tmp_path / "snapshot", tmp_path / "changes"
    snapshot.write_text("an empty state")
    changes.write_text("no changes")
    return snapshot, changes


def emptied(batches: int) -> dict[str, str]:
    return {f"state/0/{partition}/{batches}.zip": "an empty state" for partition in range(PARTITIONS)}


def test_the_state_is_empty_from_the_next_batch_on_and_everything_else_stays(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    own = tmp_path / "hourly"
    checkpoint(own, 3)
    before = content(own / "checkpoint")
    DroppedState(own).drop(2, 7_000, files[0])
    now = content(own / "checkpoint")
    assert DroppedState(own).read() == DroppedRecord(2, 2, 7_000)
    assert {name: text for name, text in now.items() if name.startswith("state")} == emptied(3)
    others = {name: text for name, text in before.items() if not name.startswith("state")}
    assert others.items() <= now.items()
    assert len(now) == len(others) + len(emptied(3)) + 1


@pytest.mark.parametrize("later", [0, 2])
def test_the_former_state_comes_back_after_the_batches_since(
    tmp_path: Path, files: tuple[Path, Path], later: int
) -> None:
    own = tmp_path / "hourly"
    checkpoint(own, 3)
    before = content(own / "checkpoint")
    DroppedState(own).drop(2, None, files[0])
    for batch in range(3, 3 + later):
        commit(own, batch)
    assert DroppedState(own).lacks_changes == (later > 0)
    DroppedState(own).restore(files[1])
    now = content(own / "checkpoint")
    assert before.items() <= now.items()
    states = {name for name in now if name.startswith("state")}
    assert len(states) == PARTITIONS * (3 + later)
    assert all(
        now[f"state/0/{p}/{3 + n}.changelog"] == "no changes" for p in (0, 1) for n in range(1, later + 1)
    )
    assert DroppedState(own).read() is None
    assert not DroppedState(own).has_former


def test_a_second_change_that_drops_a_state_gives_back_that_of_the_first(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    own = tmp_path / "hourly"
    checkpoint(own, 2)
    DroppedState(own).drop(2, 1_000, files[0])
    DroppedState(own).forget()
    commit(own, 2)
    known = content(own / "checkpoint")
    DroppedState(own).drop(3, 2_000, files[0])
    assert DroppedState(own).read() == DroppedRecord(3, 2, 2_000)
    DroppedState(own).restore(None)
    assert content(own / "checkpoint") == known
    assert DroppedState(own).read() == DroppedRecord(2, 1, 1_000)


@pytest.mark.parametrize("way", ["drop", "restore"])
def test_a_death_at_any_moment_leaves_one_state_or_the_other(
    tmp_path: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    outcomes = set[str]()
    for step in range(200):
        own = tmp_path / str(step) / "hourly"
        checkpoint(own, 3)
        former = content(own / "checkpoint")
        if way == "restore":
            DroppedState(own).drop(2, 7_000, files[0])
        old = content(own / "checkpoint")
        with suppress(DeathError), dying_at(step, monkeypatch):
            if way == "drop":
                DroppedState(own).drop(2, 7_000, files[0])
            else:
                DroppedState(own).restore(None)
            outcomes.add("lived")
        settle_checkpoints(tmp_path / str(step))
        now = content(own / "checkpoint")
        is_old, is_new = now == old, now == (former if way == "restore" else now) and now != old
        assert is_old or is_new, f"step {step}: {sorted(now)}"
        if way == "drop" and is_new:
            assert DroppedState(own).read() == DroppedRecord(2, 2, 7_000)
            assert emptied(3).items() <= now.items()
            assert not any(name.endswith(".changelog") for name in now)
        outcomes.add("old" if is_old else "new")
        if is_old:  # the next process does it again
            DroppedState(own).drop(2, 7_000, files[0]) if way == "drop" else DroppedState(own).restore(None)
            assert content(own / "checkpoint") != old
        if "lived" in outcomes:
            break
    assert outcomes == {"lived", "old", "new"}
    assert dropped_state.DIRECTORY == "dropped"


@pytest.mark.parametrize("way", ["drop", "restore"])
@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_disk_that_fails_from_any_moment_on_leaves_one_state_which_the_next_process_makes_durable(
    tmp_path: Path, files: tuple[Path, Path], way: str, call: str
) -> None:
    for first in range(100):
        own = tmp_path / str(first) / "hourly"
        checkpoint(own, 3)
        former = content(own / "checkpoint")
        if way == "restore":
            DroppedState(own).drop(2, 7_000, files[0])
        old = content(own / "checkpoint")
        with failing(call, lambda n, first=first: n >= first) as calls, suppress(OutputError):
            if way == "drop":
                DroppedState(own).drop(2, 7_000, files[0])
            else:
                DroppedState(own).restore(None)
        if calls[0] <= first:
            break
        with failing("fsync", lambda _: False) as synced:
            settle_checkpoints(tmp_path / str(first))
        assert synced[0] >= 1, "a name that may not be durable was taken for one that is"
        now = content(own / "checkpoint")
        assert now == old or (now == former if way == "restore" else DroppedState(own).read() is not None)
        assert DroppedState(own).has_former == (DroppedState(own).read() is not None)
    assert first >= 2


def test_before_the_first_batch_there_is_nothing_to_empty(tmp_path: Path) -> None:
    own = tmp_path / "hourly"
    own.mkdir()
    DroppedState(own).drop(2, None, None)
    assert DroppedState(own).read() == DroppedRecord(2, -1)
    assert not DroppedState(own).has_former
