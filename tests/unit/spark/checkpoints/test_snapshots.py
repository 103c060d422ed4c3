"""Snapshots: whole or not there, of one version, and nothing of them is Spark's own file."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from pathlib import Path

import pytest

from drivetrain.errors import InputError, OutputError
from drivetrain.runtime.checkpoints.snapshots import Snapshots, StateFileDamagedError
from drivetrain.runtime.former_snapshots import newest_former, note_former


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or path.name)


def write_checksum(path: Path) -> None:
    """What Hadoop writes beside the file."""
    content = path.read_bytes()
    pieces = [content[at : at + 4] for at in range(0, len(content), 4)]
    sums = b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (4).to_bytes(4, "big") + sums)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A fragment's directory after batch 3, with batch 4 planned."""
    own = tmp_path / "fragment"
    for batch in range(5):
        write(own / "checkpoint" / "offsets" / str(batch))
    for batch in range(4):
        write(own / "checkpoint" / "commits" / str(batch))
    write(own / "checkpoint" / "metadata")
    state = own / "checkpoint" / "state" / "0" / "1"
    for version in range(1, 6):
        write(state / f"{version}.changelog")
        write_checksum(state / f"{version}.changelog")
    write(state / "2.zip")
    write(own / "checkpoint" / "state" / "0" / "_metadata" / "schema")
    write(own / "checkpoint" / "sources" / "0" / "7")
    write(own / "sources" / "read" / "files")
    for name in ("clock", "lock", "released"):
        write(own / name)
    return own


def with_another_change(own: Path) -> Path:
    """Gives a file of the state another content, as long as the first one."""
    changed = own / "checkpoint" / "state" / "0" / "1" / "4.changelog"
    write(changed, "another-4.c")
    return changed


def files(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def test_a_snapshot_has_what_its_batch_needs_and_nothing_later(own: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    size = snapshots.take("f", 1, own, 3)
    kept = snapshots.place("f", 1)
    assert files(kept) == {
        "checkpoint/metadata",
        "checkpoint/offsets/2",
        "checkpoint/offsets/3",
        "checkpoint/commits/3",
        "checkpoint/state/0/1/2.zip",
        "checkpoint/state/0/1/3.changelog",
        "checkpoint/state/0/1/4.changelog",
        "checkpoint/state/0/_metadata/schema",
        "checkpoint/sources/0/7",
        "sources/read/files",
        "clock",
    }
    assert size == sum((kept / name).stat().st_size for name in files(kept))


def test_before_the_first_batch_there_is_no_checkpoint_to_keep(own: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, -1)
    assert files(snapshots.place("f", 1)) == {"sources/read/files", "clock"}


def test_what_the_snapshot_before_has_is_linked_and_sparks_files_are_copied(
    own: Path, tmp_path: Path
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, 3)
    write(own / "checkpoint" / "commits" / "4")
    snapshots.take("f", 2, own, 4)
    name = "checkpoint/state/0/1/3.changelog"
    first, second = snapshots.place("f", 1) / name, snapshots.place("f", 2) / name
    assert os.path.samefile(first, second)
    assert not os.path.samefile(own / name, second)
    (own / name).write_text("damaged")
    assert second.read_text() == "3.changelog"
    assert (snapshots.place("f", 2) / "checkpoint/state/0/1/5.changelog").exists()


def test_a_restore_brings_back_the_snapshot_and_keeps_the_lock(own: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 4, own, 3)
    inode = (own / "lock").stat().st_ino
    shutil.rmtree(own / "checkpoint" / "state")
    snapshots.restore("f", 4, own)
    assert files(own) == files(snapshots.place("f", 4)) | {"lock"}
    assert (own / "lock").stat().st_ino == inode
    (own / "clock").write_text("moves on")
    assert (snapshots.place("f", 4) / "clock").read_text() == "clock"
    snapshots.restore("f", None, own)
    assert files(own) == {"lock"}


def test_a_snapshot_that_is_gone_is_named(own: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 4, own, 3)
    with pytest.raises(InputError, match=r"(?s)gone.*round 5.*rounds \[4\]") as raised:
        snapshots.restore("f", 5, own)
    assert "savepoint" in str(raised.value)
    assert (own / "checkpoint").is_dir()


def test_a_crash_while_it_is_written_leaves_none_and_the_next_one_is_whole(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            snapshots.take("f", 1, own, 3)
    assert snapshots.rounds("f") == []
    snapshots.take("f", 1, own, 3)
    assert snapshots.rounds("f") == [1]
    assert [p.name for p in (tmp_path / "snapshots" / "f").iterdir()] == ["1"]


def test_a_disk_that_takes_nothing_is_said(own: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("a file where a directory should be")
    with pytest.raises(OutputError, match="snapshot of fragment f cannot be written"):
        Snapshots(tmp_path / "snapshots").take("f", 1, own, 3)


def test_older_and_unfinished_ones_are_forgotten(own: Path, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    for round in (1, 2, 3):
        snapshots.take("f", round, own, 3)
    write(tmp_path / "snapshots" / "f" / ".9.tmp" / "half")
    snapshots.forget("f", 2)
    assert snapshots.rounds("f") == [2, 3]
    assert not (tmp_path / "snapshots" / "f" / ".9.tmp").exists()
    snapshots.drop("f", 3)
    assert snapshots.rounds("f") == [2]
    snapshots.forget("unknown", 1)


@pytest.mark.parametrize("name", ["state/0/1/3.changelog", "offsets/3", "commits/3", "sources/0/7"])
def test_damage_that_nobody_has_read_yet_does_not_reach_the_next_snapshot(
    own: Path, tmp_path: Path, name: str
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, 3)
    file = own / "checkpoint" / name
    whole = file.read_text()
    file.write_text(whole[:1])
    snapshots.take("f", 2, own, 3)
    snapshots.forget("f", 2)
    snapshots.restore("f", 2, own)
    assert file.read_text() == whole


def test_going_back_deletes_later_snapshots_whose_files_have_other_contents_under_the_same_names(
    own: Path, tmp_path: Path
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, 2)
    snapshots.take("f", 2, own, 3)
    snapshots.restore("f", 1, own)
    assert snapshots.rounds("f") == [1]
    again = with_another_change(own)
    for folder in ("offsets", "commits"):
        write(own / "checkpoint" / folder / "3")
    snapshots.take("f", 3, own, 3)
    assert (snapshots.place("f", 3) / again.relative_to(own)).read_text() == "another-4.c"
    snapshots.restore("f", None, own)
    assert snapshots.rounds("f") == []
    assert files(own) == {"lock"}


def test_a_fragment_shares_no_file_with_the_snapshots_of_a_former_one_of_its_name(
    own: Path, tmp_path: Path
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, 3)
    snapshots.take("g", 1, own, 3)
    for _ in range(2):  # if the first one dies before it has deleted the fragment
        note_former(snapshots.directory, "f")
    assert (snapshots.rounds("f"), snapshots.rounds("g")) == ([], [1])
    again = with_another_change(own)
    write_checksum(again)
    snapshots.take("f", 2, own, 3)
    assert (snapshots.place("f", 2) / again.relative_to(own)).read_text() == "another-4.c"
    assert snapshots.rounds("f") == [2]
    snapshots.forget("f", 2)
    assert not snapshots.place("f", 1).exists()
    assert newest_former(snapshots.directory, "f") == 1
    note_former(snapshots.directory, "f")
    assert newest_former(snapshots.directory, "f") == 2


def test_going_back_keeps_the_numbers_by_which_outputs_know_its_batches(own: Path, tmp_path: Path) -> None:
    write(own / "first-batch", "31")
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.restore("f", None, own)
    assert files(own) == {"first-batch", "lock"}


@pytest.mark.parametrize("content", ["", "4.ch", "4.changelox", "4.changelog and more"])
def test_a_file_that_is_not_as_spark_wrote_it_is_not_saved(own: Path, tmp_path: Path, content: str) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    file = own / "checkpoint" / "state" / "0" / "1" / "4.changelog"
    file.write_text(content)
    with pytest.raises(StateFileDamagedError) as refused:
        snapshots.take("f", 1, own, 3)
    assert refused.value.where == str(file)
    assert snapshots.rounds("f") == []


def test_a_file_that_was_deleted_is_taken_from_the_snapshot_before_or_nothing_is_saved(
    own: Path, tmp_path: Path
) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.take("f", 1, own, 2)
    state = own / "checkpoint" / "state" / "0" / "1"
    (state / "3.changelog").unlink()
    snapshots.take("f", 2, own, 3)
    assert (snapshots.place("f", 2) / "checkpoint/state/0/1/3.changelog").read_text() == "3.changelog"
    (state / "5.changelog").unlink()
    with pytest.raises(StateFileDamagedError) as refused:
        snapshots.take("f", 3, own, 4)
    assert refused.value.where == str(state)
    assert snapshots.rounds("f") == [1, 2]


@pytest.mark.parametrize("deleted", ["2.zip", "4.changelog"])
def test_a_state_with_a_gap_is_not_saved(own: Path, tmp_path: Path, deleted: str) -> None:
    state = own / "checkpoint" / "state" / "0" / "1"
    (state / "1.changelog").unlink()
    (state / deleted).unlink()
    with pytest.raises(StateFileDamagedError, match="missing"):
        Snapshots(tmp_path / "snapshots").take("f", 1, own, 3)


def test_a_file_that_spark_is_replacing_is_read_again(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own / "checkpoint" / "state" / "0" / "1" / "4.changelog"
    file.write_text("the new content")  # its checksum follows while the snapshot waits
    monkeypatch.setattr(time, "sleep", lambda _: write_checksum(file))
    Snapshots(tmp_path / "snapshots").take("f", 1, own, 3)
    assert (tmp_path / "snapshots" / "f" / "1" / file.relative_to(own)).read_text() == "the new content"
