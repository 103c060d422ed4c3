from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.errors import InternalError
from drivetrain.spark.sources import file_log
from drivetrain.spark.sources.file_log import COMPACT_EVERY, FileLog, FileSplit
from drivetrain.spark.sources.location import FoundFile

LOCAL = pafs.LocalFileSystem()


class InMemoryLog(FileLog):
    """The arithmetic alone, without a disk."""

    def __init__(self, files: list[tuple[int, bool]]) -> None:
        super().__init__(LOCAL, "/nowhere/at/all")
        self._remember((FoundFile(f"f{index}", size), whole) for index, (size, whole) in enumerate(files))


files_strategy = st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=8)


@settings(deadline=None)
@given(files_strategy, st.integers(1, 40), st.integers(1, 4))
def test_batches_take_every_byte_of_every_file_once_and_in_order(
    files: list[tuple[int, bool]], limit: int, parts: int
) -> None:
    log = InMemoryLog(files)
    taken: list[FileSplit] = []
    at = 0
    while (end := log.cut(at, limit)) > at:
        batch = [split for group in log.splits(at, end, parts) for split in group]
        if not any(whole for _, whole in files):
            assert sum(split.end - split.start for split in batch) <= limit
        taken += batch
        at = end
    assert at == log.total_bytes
    expected = [(f"f{i}", byte) for i, (size, _) in enumerate(files) for byte in range(size)]
    assert [(s.path, byte) for s in taken for byte in range(s.start, s.end)] == expected


@settings(deadline=None)
@given(files_strategy, st.integers(1, 40))
def test_a_whole_file_is_never_cut(files: list[tuple[int, bool]], limit: int) -> None:
    log = InMemoryLog(files)
    at = 0
    while (end := log.cut(at, limit)) > at:
        for group in log.splits(at, end, 3):
            for split in group:
                assert not split.whole or (split.start, split.end) == (0, split.size_bytes)
        at = end


def test_a_log_that_is_opened_again_has_the_same_files_in_the_same_order(tmp_path: Path) -> None:
    log = FileLog(LOCAL, str(tmp_path / "log"))
    assert not log.exists
    assert log.append([(FoundFile("b", 3, 7), False), (FoundFile("a", 4), True)]) == 2
    assert log.append([(FoundFile("a", 4), True), (FoundFile("c", 5), False)]) == 1
    again = FileLog(LOCAL, str(tmp_path / "log"))
    assert again.exists
    assert again.total_bytes == 12
    assert again.splits(0, 12, 1) == log.splits(0, 12, 1)
    assert [split.path for split in again.splits(0, 12, 1)[0]] == ["b", "a", "c"]


def test_an_empty_first_listing_is_remembered(tmp_path: Path) -> None:
    FileLog(LOCAL, str(tmp_path)).append([])
    assert FileLog(LOCAL, str(tmp_path)).exists


def test_segments_are_compacted_and_nothing_is_lost(tmp_path: Path) -> None:
    log = FileLog(LOCAL, str(tmp_path))
    count = 2 * COMPACT_EVERY + 5
    for number in range(count):
        log.append([(FoundFile(f"f{number}", 1), False)])
    assert len(list(tmp_path.iterdir())) < COMPACT_EVERY
    again = FileLog(LOCAL, str(tmp_path))
    assert [split.path for split in again.splits(0, count, 1)[0]] == [f"f{n}" for n in range(count)]


def test_a_segment_cut_short_by_a_crash_is_not_read(tmp_path: Path) -> None:
    FileLog(LOCAL, str(tmp_path)).append([(FoundFile("a", 1), False)])
    (tmp_path / ".files-000000001.json.tmp").write_text('{"version": 1, "fi')
    assert FileLog(LOCAL, str(tmp_path)).total_bytes == 1


def test_a_batch_takes_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "MAX_FILES_PER_BATCH", 3)
    log = InMemoryLog([(1, False)] * 10)
    assert log.cut(0, None) == 3
    assert log.cut(3, 100) == 6


def test_reading_past_the_log_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        FileLog(LOCAL, str(tmp_path)).splits(0, 5, 1)
