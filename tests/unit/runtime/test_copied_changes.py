"""How an application has changed, beside its copied checkpoints: noted before it counts, and continued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.core.replay.replay import Life
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant, TakenOverError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import FORMAT, Manifest, SavedFile, SavepointError
from model_store import ModelStore


def manifest(files: Mapping[str, SavedFile]) -> Manifest:
    record = CheckpointRecord(1, 1, {})
    return Manifest(FORMAT, "shop", "shop-1", {}, {}, 0, {}, Life(), record, None, {}, dict(files))


class Machine:
    """A machine with its disk, on which a process has claimed the application."""

    def __init__(
        self, store: ModelStore, directory: Path, *, starts_over: bool = False, by: Claimant = Claimant()
    ) -> None:
        self.directory = directory
        directory.mkdir()
        self.copies = CopiedCheckpoints(store, "copies/shop-1", "here", directory, by=by)
        self.copies.begin()
        self.copies.claim(starts_over=starts_over)

    def _written(self, files: Mapping[str, str]) -> dict[str, Path]:
        found = {}
        for name, text in files.items():
            found[name] = self.directory / name.replace("/", "-")
            if not found[name].exists() or found[name].read_text() != text:
                found[name].unlink(missing_ok=True)
                found[name].write_text(text)
        return found

    def checkpoint(self, files: Mapping[str, str], changes: Mapping[str, str]) -> int:
        """Make a checkpoint of these files, while the application has changed so."""
        return self.copies.add(self._written(files).items(), manifest, self._written(changes))

    def keep(self, changes: Mapping[str, str], more: Mapping[str, str]) -> None:
        """Note how the application has changed: `more` is not written yet."""
        self.copies.keep(self._written(changes), {name: text.encode() for name, text in more.items()})

    def changes(self) -> dict[str, str]:
        """How it has changed, according to the newest copy."""
        newest = self.copies.newest()
        assert newest is not None
        return {name: content.decode() for name, content in self.copies.changes_of(newest).items()}

    def files(self) -> dict[str, str]:
        """The files of the newest copy."""
        newest, aside = self.copies.newest(), self.directory / "fetched"
        assert newest is not None
        assert newest.manifest is not None
        self.copies.fetch(newest, aside)
        return {name: (aside / name).read_text() for name in newest.manifest.files}


@pytest.fixture
def store() -> ModelStore:
    return ModelStore()


def test_a_change_is_noted_beside_the_newest_checkpoint_and_continued(
    store: ModelStore, tmp_path: Path
) -> None:
    first = Machine(store, tmp_path / "a")
    first.keep({"versions/1": "one"}, {"versions/1.graph": "code"})
    assert first.changes() == {"versions/1": "one", "versions/1.graph": "code"}, "before any checkpoint"
    first.checkpoint({"x": "state"}, {"versions/1": "one"})
    first.keep({"versions/1": "one"}, {"versions/2": "two", "versions/1": "another"})
    assert first.files() == {"x": "state"}
    second = Machine(store, tmp_path / "b")
    assert second.changes() == {"versions/1": "another", "versions/2": "two"}
    assert second.files() == {"x": "state"}
    with pytest.raises(TakenOverError):
        first.keep({}, {"versions/3": "three"})
    second.checkpoint({"x": "more"}, {"versions/1": "another"})
    assert second.changes() == {"versions/1": "another"}, "what a checkpoint has counts from then on"


def test_a_change_whose_answer_was_lost_is_replaced_by_the_next(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a")
    machine.checkpoint({"x": "state"}, {})

    def lose(what: str, _path: str) -> None:
        if what == "create":
            raise TimeoutError

    store.after = lose
    with pytest.raises(TimeoutError):
        machine.keep({}, {"versions/2": "two"})
    store.after = lambda *_: None
    machine.keep({}, {"versions/2": "another"})
    assert machine.changes() == {"versions/2": "another"}
    assert machine.files() == {"x": "state"}


def test_an_application_that_starts_over_has_no_changes(store: ModelStore, tmp_path: Path) -> None:
    Machine(store, tmp_path / "a").keep({}, {"versions/1": "one"})
    assert Machine(store, tmp_path / "b", starts_over=True).changes() == {}


def test_changes_are_read_without_the_state_and_leave_nothing_behind(
    store: ModelStore, tmp_path: Path
) -> None:
    machine = Machine(store, tmp_path / "a")
    for n in range(30):
        machine.checkpoint({"state": "s" * 100_000, "offsets": str(n)}, {"versions/1": "one"})
        machine.keep({"versions/1": "one"}, {"versions/1.stages": str(n)})
    assert len(store.objects) < 20
    read: list[str] = []
    store.before = lambda what, path: read.append(path) if what == "get" and "/packs/" in path else None
    assert machine.changes() == {"versions/1": "one", "versions/1.stages": "29"}
    assert sum(len(store.objects[path]) for path in read) < 1_000


@pytest.mark.parametrize("content", [b"two", None])
def test_damaged_changes_are_refused(store: ModelStore, tmp_path: Path, content: bytes | None) -> None:
    machine = Machine(store, tmp_path / "a")
    machine.keep({}, {"versions/1": "one"})
    (pack,) = (path for path in store.objects if "/packs/" in path)
    store.objects[pack] = content or b""
    if content is None:
        del store.objects[pack]
    with pytest.raises(SavepointError, match="damaged"):
        machine.changes()


def test_changes_are_known_to_be_of_the_submission_that_made_them(store: ModelStore, tmp_path: Path) -> None:
    first = Machine(store, tmp_path / "a", by=Claimant("one", 1))
    assert not first.copies.are_changes_own
    first.keep({}, {"versions/1": "one"})
    assert Machine(store, tmp_path / "b", by=Claimant("one", 2)).copies.are_changes_own
    later = Machine(store, tmp_path / "c", by=Claimant("two", 1))
    assert not later.copies.are_changes_own
    assert not Machine(store, tmp_path / "d").copies.are_changes_own, "a process by itself has no submission"
    again = Machine(store, tmp_path / "e", by=Claimant("two", 2))
    assert not again.copies.are_changes_own, "the former of this submission has changed nothing"
    again.checkpoint({"x": "state"}, {"versions/1": "one"})
    assert Machine(store, tmp_path / "f", by=Claimant("two", 3)).copies.are_changes_own
