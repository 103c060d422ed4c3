"""Savepoints in object stores: uploaded from a directory, and fetched into one.

Problem: a machine may be lost with its disks. A savepoint must then be somewhere else, whole, and one that
was only begun must not be mistaken for it.

Design: the files of a savepoint become objects below a folder with a unique name. Then one object is created
that names the folder, if there is none yet: from then on the place has a savepoint. Fetching reads that
object, the manifest in the folder, and the files that the manifest names; their hashes are verified as those
of any other directory (`savepoint_manifest`).

    <place>/savepoint.json              created last: {"files": "files-<nonce>"}
    <place>/files-<nonce>/manifest.json …

What if we die here: a folder that no object names is no savepoint. The next upload to the place leaves it
alone, since another process may be writing it.

Invariants:

1. A place has a savepoint if and only if it has `savepoint.json`; then the savepoint is whole, and stays so.
2. Of several uploads to one place one succeeds; the others raise, and delete what they have uploaded.

Called by `savepoint_requests`, `drivetrain savepoint` and `execution`.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from drivetrain.config import Config
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import writing
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    MANIFEST,
    SavepointError,
    files_below,
    read_manifest,
)
from drivetrain.runtime.checkpoints.savepoint_place import savepoint_place
from drivetrain.runtime.objects.locations import is_in_object_store, open_place
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.state_place import state_home

_NAMING: Final = "savepoint.json"


class _Named(msgspec.Struct):
    files: str


def refuse_taken_place(place: str, stores: StoreSettings) -> None:
    """Raise OutputError when a place in an object store has a savepoint."""
    store, name = open_place(place, stores)
    if store.find(_inside(name, _NAMING)) is not None:
        raise _taken(place)


@contextmanager
def uploaded_to(place: str, config: Config) -> Iterator[Path]:
    """A directory to write a savepoint to, which is uploaded to a place in an object store afterwards."""
    stores = StoreSettings.of(config)
    refuse_taken_place(place, stores)
    name = f".upload-{uuid.uuid4().hex}"
    directory = savepoint_place(state_home(config), "", name).absolute()
    try:
        yield directory
        upload(directory, place, stores)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def upload(directory: Path, place: str, stores: StoreSettings) -> None:
    """Copy the savepoint in a directory to a place in an object store.

    Raises OutputError when the place has one, or cannot be written, and UnavailableError.
    """
    refuse_taken_place(place, stores)
    store, name = open_place(place, stores)
    folder = f"files-{uuid.uuid4().hex}"
    uploaded: list[str] = []
    may_be_named = False
    try:
        for file in sorted(files_below(directory)):
            path = _inside(name, f"{folder}/{file}")
            uploaded.append(path)
            store.put(path, (directory / file).read_bytes())
        maybe_crash(CrashPoint.SAVEPOINT_UPLOADED)
        may_be_named = True  # also when no answer comes
        may_be_named = store.put_if_absent(_inside(name, _NAMING), msgspec.json.encode(_Named(folder)))
        if not may_be_named:
            raise _taken(place)
    except PermissionError as error:
        raise OutputError(
            "the savepoint cannot be written",
            where=place,
            got=str(error),
            remedy="allow these credentials to read, write and list there: `drivetrain doctor` with the "
            "place shows what is missing",
        ) from error
    finally:
        if not may_be_named:
            _delete(store, uploaded)


@contextmanager
def local_savepoint(place: str, aside: Path, stores: StoreSettings) -> Iterator[Path]:
    """The directory of the savepoint at a place; one in an object store is fetched into `aside` meanwhile.

    Raises SavepointError when there is none, or when it is damaged.
    """
    if not is_in_object_store(place):
        yield Path(place)
        return
    with fetched_into(aside, lambda: _fetch(place, aside, stores)):
        yield aside


@contextmanager
def fetched_into(aside: Path, fetch: Callable[[], None]) -> Iterator[None]:
    """A new directory `aside`, filled by `fetch`, which is there while the block runs."""
    try:
        shutil.rmtree(aside, ignore_errors=True)  # of a process that died
        with writing("the savepoint that is fetched", aside):
            aside.mkdir(parents=True, mode=0o700)
        fetch()
        yield
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _fetch(place: str, aside: Path, stores: StoreSettings) -> None:
    store, name = open_place(place, stores)
    try:
        folder = msgspec.json.decode(store.get(_inside(name, _NAMING)), type=_Named).files
        _fetch_file(store, _inside(name, folder), MANIFEST, aside)
        for file in read_manifest(aside).files:
            if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
                raise _unusable(place, f"a file that is named {file}")
            _fetch_file(store, _inside(name, folder), file, aside)
    except FileNotFoundError as error:
        raise _unusable(place, str(error)) from error
    except PermissionError as error:
        raise _unusable(place, str(error)) from error
    except msgspec.DecodeError as error:
        raise _unusable(place, f"{_NAMING}: {error}") from error


def _fetch_file(store: ObjectStore, folder: str, file: str, aside: Path) -> None:
    content = store.get(f"{folder}/{file}")
    with writing("the savepoint that is fetched", aside):
        (aside / file).parent.mkdir(parents=True, exist_ok=True)
        (aside / file).write_bytes(content)


def _delete(store: ObjectStore, paths: list[str]) -> None:
    """Delete what no savepoint names; it does no harm if that fails."""
    try:
        for path in paths:
            store.delete(path)
    except (DrivetrainError, PermissionError):
        return


def _inside(name: str, file: str) -> str:
    return f"{name}/{file}" if name else file


def _taken(place: str) -> OutputError:
    return OutputError(
        "the place of the savepoint is not empty",
        where=place,
        expected="a place without a savepoint",
        remedy="name another place",
    )


def _unusable(place: str, got: str) -> SavepointError:
    return SavepointError(
        "there is no complete savepoint here",
        where=place,
        got=got,
        remedy="use the place that `drivetrain savepoint` printed; an unfinished one cannot be used",
    )
