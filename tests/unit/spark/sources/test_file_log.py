from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.api.sources import TextFiles
from drivetrain.connectors.files import file_log, seen_paths
from drivetrain.connectors.files.file_log import FileLog, FileSplit
from drivetrain.connectors.files.file_reader import ReadPlan, plan_splits
from drivetrain.connectors.files.seen_paths import SeenPaths
from drivetrain.errors import InternalError
from drivetrain.runtime.file_locations import FoundFile

LOCAL = pafs.LocalFileSystem()
FAN = 4


class InMemoryLog(FileLog):
    """The arithmetic alone, without a disk."""

    def __init__(self, files: list[tuple[int, bool]]) -> None:
        super().__init__(pafs._MockFileSystem(), "log")
        self.append((FoundFile(f"f{index}", size), whole) for index, (size, whole) in enumerate(files))


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


def test_small_pieces_are_merged_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "FAN", FAN)
    log = FileLog(LOCAL, str(tmp_path))
    count = FAN * FAN + 5
    for number in range(count):
        assert log.append([(FoundFile(f"f{number}", 1), False), (FoundFile("f0", 1), False)]) == 1
    assert len(list(tmp_path.iterdir())) < 3 * FAN
    for known in (log, FileLog(LOCAL, str(tmp_path))):
        assert [split.path for split in known.splits(0, count, 1)[0]] == [f"f{n}" for n in range(count)]
        assert [split.path for split in known.splits(10, 15, 1)[0]] == [f"f{n}" for n in range(10, 15)]
        assert known.append([(FoundFile(f"f{number}", 1), False) for number in range(count)]) == 0


def test_a_piece_cut_short_by_a_crash_is_not_read(tmp_path: Path) -> None:
    FileLog(LOCAL, str(tmp_path)).append([(FoundFile("a", 1), False)])
    (tmp_path / ".files-000000000001-000000000002-0.arrow.tmp").write_bytes(b"ARROW1")
    assert FileLog(LOCAL, str(tmp_path)).total_bytes == 1


def test_wherever_a_merge_is_interrupted_the_log_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_log, "FAN", FAN)

    class Crash(BaseException):
        pass

    for kept in range(FAN + 2):
        directory = tmp_path / str(kept)
        log = FileLog(LOCAL, str(directory))
        for number in range(FAN - 1):
            log.append([(FoundFile(f"f{number}", 2), False)])
        left = kept

        class Dying(pafs.LocalFileSystem):
            def delete_file(self, path: str) -> None:
                nonlocal left
                left -= 1
                if left <= 0:
                    raise Crash
                super().delete_file(path)

        log = FileLog(Dying(), str(directory))
        with contextlib.suppress(Crash):
            log.append([(FoundFile("last", 2), False)])
        again = FileLog(LOCAL, str(directory))
        assert again.total_bytes == 2 * FAN
        for number in range(FAN):
            again.append([(FoundFile(f"g{number}", 1), False)])
        assert FileLog(LOCAL, str(directory)).total_bytes == 3 * FAN


def test_a_hundred_thousand_files_take_a_few_bytes_each(tmp_path: Path) -> None:
    log = FileLog(LOCAL, str(tmp_path))
    paths = [f"/data/in/2024/05/01/part-{number:09d}.jsonl" for number in range(100_000)]
    for low in range(0, len(paths), 1_000):
        log.append([(FoundFile(path, 1_000), False) for path in paths[low : low + 1_000]])
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert on_disk < 25 * len(paths)
    assert log._seen.nbytes <= 16 * len(paths)
    assert sum(table.num_rows for table in log._tables.values()) <= 2 * file_log.MOST_FILES
    assert [split.path for split in log.splits(50_000_000, 50_002_000, 1)[0]] == paths[50_000:50_002]


@given(st.lists(st.lists(st.sampled_from("abcdefghijklmnopq"), max_size=6), max_size=12))
def test_paths_are_seen_once(batches: list[list[str]]) -> None:
    seen, known = SeenPaths(), set[str]()
    for paths in batches:
        assert seen.are_new(paths) == [path not in known for path in paths]
        seen.add_many([paths])
        known.update(paths)


def test_hashes_with_one_half_in_common_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_paths, "_digest", lambda path: b"\x01" * 8 + path.encode().ljust(8))
    seen = SeenPaths()
    seen.add_many(["bd", "f"])
    assert seen.are_new(list("abcdefg")) == [True, False, True, False, True, False, True]


def test_a_batch_takes_a_bounded_number_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_log, "MAX_FILES_PER_BATCH", 3)
    log = InMemoryLog([(1, False)] * 10)
    assert log.cut(0, None) == 3
    assert log.cut(3, 100) == 6


def test_reading_past_the_log_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        FileLog(LOCAL, str(tmp_path)).splits(0, 5, 1)


@pytest.mark.parametrize(("mib", "parts"), [(0.5, 1), (1.5, 1), (20, 2), (300, 2), (500, 3), (5_000, 8)])
def test_much_is_divided_into_more_parts_than_there_are_cores(mib: float, parts: int) -> None:
    size = int(mib * 1024 * 1024)
    plan = ReadPlan(TextFiles(path="in"), "state", max_batch_bytes=size, parallelism=2)
    divided = plan_splits(plan, InMemoryLog([(size, False)]), 0, size)
    sizes = [sum(split.end - split.start for split in part.splits) for part in divided]
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= parts
    assert sum(sizes) == size
