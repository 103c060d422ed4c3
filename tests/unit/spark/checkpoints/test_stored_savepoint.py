"""Savepoints in an object store: whole or not there, whichever process dies, and one for each place."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_savepoint import Ran

from drivetrain.config import Config
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OutputError
from drivetrain.runtime.checkpoints.savepoint_manifest import SavepointError, files_below, verified
from drivetrain.runtime.checkpoints.stored_savepoint import local_savepoint, upload, uploaded_to
from drivetrain.runtime.objects import locations
from drivetrain.runtime.objects.settings import StoreSettings
from model_store import CHANGES, ModelStore

PLACE, STORES = "s3://kept/shop/monday", StoreSettings()


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelStore]:
    made = ModelStore()
    monkeypatch.setattr(locations, "ObstoreStore", lambda *_: made)
    locations._connected.cache_clear()
    yield made
    locations._connected.cache_clear()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved")
    return Ran(directory / "state").save(directory / "place")


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in files_below(directory)}


def test_what_is_fetched_is_what_was_uploaded(store: ModelStore, saved: Path, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    (aside / "left").mkdir(parents=True)  # by a process that died
    upload(saved, PLACE, STORES)
    with local_savepoint(PLACE, aside, STORES) as fetched:
        verified(fetched)
        assert contents(fetched) == contents(saved)
        assert fetched.stat().st_mode & 0o077 == 0
    assert not aside.exists()
    with local_savepoint(str(saved), aside, STORES) as same:
        assert same == saved


@pytest.mark.parametrize("moment", ["before", "after"])
def test_wherever_the_upload_dies_there_is_a_whole_savepoint_or_none(
    store: ModelStore, saved: Path, tmp_path: Path, moment: str
) -> None:
    step, died = 0, True
    while died:
        store.objects.clear()
        died = _dies(store, moment, step, saved)
        if "shop/monday/savepoint.json" in store.objects:
            assert _fetched(tmp_path) == contents(saved)
            with pytest.raises(OutputError, match="not empty"):
                upload(saved, PLACE, STORES)
        else:
            with pytest.raises(SavepointError, match="no complete savepoint"):
                _fetched(tmp_path)
            upload(saved, PLACE, STORES)
            assert _fetched(tmp_path) == contents(saved)
        step += 1
    assert step > len(contents(saved))


def test_files_that_nothing_names_are_no_savepoint(store: ModelStore, saved: Path, tmp_path: Path) -> None:
    def die(point: CrashPoint) -> None:
        if point is CrashPoint.SAVEPOINT_UPLOADED:
            store.before = lambda what, path: _raise()  # what is dead changes nothing more
            raise Crash

    with armed(die), pytest.raises(Crash):
        upload(saved, PLACE, STORES)
    store.before = lambda what, path: None
    assert len(store.objects) >= len(contents(saved))
    with pytest.raises(SavepointError, match="no complete savepoint"):
        _fetched(tmp_path)
    upload(saved, PLACE, STORES)
    assert _fetched(tmp_path) == contents(saved)


def _raise() -> None:
    raise Crash


def _fetched(tmp_path: Path) -> dict[str, bytes]:
    with local_savepoint(PLACE, tmp_path / "aside", STORES) as fetched:
        verified(fetched)
        return contents(fetched)


def _dies(store: ModelStore, moment: str, step: int, saved: Path) -> bool:
    left = step

    def hook(what: str, path: str) -> None:
        nonlocal left
        if left < 0 or (what in CHANGES and left == 0):
            left = -1  # what is dead changes nothing more
            raise Crash
        left -= what in CHANGES

    setattr(store, moment, hook)
    try:
        upload(saved, PLACE, STORES)
    except Crash:
        return True
    finally:
        store.before = store.after = lambda what, path: None
    return False


def test_of_two_uploads_to_one_place_the_second_leaves_nothing(store: ModelStore, saved: Path) -> None:
    def overtaken(what: str, path: str) -> None:
        if what == "create":
            store.before = lambda what, path: None
            upload(saved, PLACE, STORES)

    store.before = overtaken
    with pytest.raises(OutputError, match="not empty"):
        upload(saved, PLACE, STORES)
    folders = {name.split("/")[2] for name in store.objects}
    assert len(folders) == 2  # the object that names the files, and one folder of files


def _delete_largest(store: ModelStore) -> None:
    del store.objects[max(store.objects, key=lambda name: len(store.objects[name]))]


def _clear(store: ModelStore) -> None:
    store.objects.clear()


def _rename(store: ModelStore) -> None:
    store.objects["shop/monday/savepoint.json"] = b'{"files": "files-none"}'


def _cut(store: ModelStore) -> None:
    store.objects["shop/monday/savepoint.json"] = b'{"fil'


def _flip(store: ModelStore) -> None:
    name = next(name for name in store.objects if name.endswith("output-token"))
    store.objects[name] = b"another"


@pytest.mark.parametrize("damage", [_delete_largest, _rename, _cut, _flip, _clear])
def test_a_damaged_one_is_refused(
    store: ModelStore, saved: Path, tmp_path: Path, damage: Callable[[ModelStore], None]
) -> None:
    upload(saved, PLACE, STORES)
    damage(store)
    with pytest.raises(SavepointError):
        _fetched(tmp_path)
    assert not (tmp_path / "aside").exists()


def test_nothing_is_left_of_an_upload_on_the_disk(store: ModelStore, saved: Path, tmp_path: Path) -> None:
    config = Config.load(None, {}, {"state.dir": str(tmp_path / "state")})
    with uploaded_to(PLACE, config) as directory:
        shutil.copytree(saved, directory)
    assert list(files_below(tmp_path / "state")) == []
    assert _fetched(tmp_path) == contents(saved)
    with pytest.raises(OutputError), uploaded_to(PLACE, config):
        raise AssertionError("it is refused before anything is written")
