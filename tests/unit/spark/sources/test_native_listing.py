"""The list of files for Spark's own reader follows its directory to another place."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from drivetrain.connectors.files import native_listing
from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.native_listing import NativeListing
from drivetrain.runtime.file_locations import FoundFile

FILES = 3


def log_of(tmp_path: Path) -> FileLog:
    log = FileLog(pafs.LocalFileSystem(), str(tmp_path / "log"))
    log.append((FoundFile(f"{tmp_path}/in/a b={n}", 10), False) for n in range(FILES))
    return log


def written(tmp_path: Path, log: FileLog) -> NativeListing:
    """A list, and Spark's log beside it, in which the first two files are taken."""
    listing = NativeListing(tmp_path / "a place" / "listing")
    listing.prepare()
    listing.write(log, pa.schema([("value", pa.string())]))
    taken = tmp_path / "a place" / "taken"
    taken.mkdir()
    first = enumerate(paths(listing)[:2])
    rows = [json.dumps({"path": path, "timestamp": n, "batchId": n}) for n, path in first]
    (taken / "1.compact").write_text("\n".join(["v1", *rows]))
    (taken / ".1.compact.crc").write_bytes(b"crc")
    return listing


def paths(listing: NativeListing) -> list[str]:
    lines = (listing.path / "_spark_metadata" / "0").read_text().splitlines()
    assert lines[0] == "v1"
    return [json.loads(line)["path"] for line in lines[1:]]


def moved(tmp_path: Path) -> NativeListing:
    """The place after a savepoint was restored elsewhere: without the links."""
    shutil.copytree(
        tmp_path / "a place",
        tmp_path / "another=place",
        ignore=lambda folder, names: [name for name in names if (Path(folder) / name).is_symlink()],
    )
    return NativeListing(tmp_path / "another=place" / "listing")


@pytest.mark.parametrize("dies_before", range(3), ids=["not", "before the log", "before the list"])
def test_paths_and_links_are_those_of_the_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_before: int
) -> None:
    log = log_of(tmp_path)
    before = paths(written(tmp_path, log))
    listing, taken = moved(tmp_path), tmp_path / "another=place" / "taken"
    if dies_before:
        published = native_listing._publish
        left = [None] * (dies_before - 1)

        def dying(file: Path, lines: list[str]) -> None:
            if not left:
                raise InterruptedError
            left.pop()
            published(file, lines)

        monkeypatch.setattr(native_listing, "_publish", dying)
        with pytest.raises(InterruptedError):
            listing.follow_move(log, str(taken))
        monkeypatch.setattr(native_listing, "_publish", published)
    listing.follow_move(log, str(taken))
    assert paths(listing) == [path.replace("a%20place", "another%3Dplace") for path in before]
    assert listing.count() == FILES + 1
    version, *rows = (taken / "1.compact").read_text().splitlines()
    assert version == "v1"
    assert [(json.loads(row)["path"], json.loads(row)["batchId"]) for row in rows] == [
        (path, n) for n, path in enumerate(paths(listing)[:2])
    ]
    assert not (taken / ".1.compact.crc").exists(), "Spark would take it for damaged"
    for number, file in enumerate(log.files()):
        assert os.readlink(listing.path / f"{number:06d}") == file.path


def test_nothing_is_written_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path)
    listing = written(tmp_path, log)
    monkeypatch.setattr(native_listing, "_publish", None)
    listing.follow_move(log, str(tmp_path / "a place" / "taken"))
    assert (tmp_path / "a place" / "taken" / ".1.compact.crc").exists()
