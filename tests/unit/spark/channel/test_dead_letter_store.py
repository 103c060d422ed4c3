"""Dead letters stay few files and within bounds; each is kept, or counted as dropped, whatever happens."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from drivetrain.errors import DiskFullError
from drivetrain.runtime import dead_letter_store as module
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.dead_letter_pages import LetterPage, newest_of, page_of
from drivetrain.runtime.dead_letter_store import DeadLetterStore, RetentionLimits
from drivetrain.runtime.durable_file import DurableFile

DAY_MS = 86_400_000
ALL = RetentionLimits(1 << 40, 1_000 * DAY_MS)


@pytest.fixture(autouse=True)
def _few_make_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAN", 4)


def opened(directory: Path, keep: RetentionLimits | None = ALL) -> DeadLetterStore:
    return DeadLetterStore(ChannelStore(str(directory), fragment="f", durable=False), keep)


def append(store: DeadLetterStore, batch: int, *messages: str, error: str = "ValueError") -> None:
    columns = {
        "operator": ["parse"] * len(messages),
        "message": list(messages),
        "file": pa.nulls(len(messages), pa.string()),
        "line": pa.nulls(len(messages), pa.int64()),
        "error": [error] * len(messages),
        TS: pa.array([dt.datetime.now(dt.UTC)] * len(messages), pa.timestamp("us", "UTC")),
    }
    segment = write_segment(store.channel.files, f"f-{batch}", pa.table(columns).to_batches())
    store.channel.append(batch, [segment], 0)


def read(store: DeadLetterStore, skip: int = 0) -> list[str]:
    return [message for batch in store.batches(skip) for message in batch.column("message").to_pylist()]


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_many_batches_are_few_files_and_are_read_in_order(tmp_path: Path) -> None:
    store = opened(tmp_path)
    expected = []
    for batch in range(90):
        append(store, batch, f"{batch}a", f"{batch}b")
        expected += [f"{batch}a", f"{batch}b"]
        store.tidy()
        assert store.messages == len(expected)
    assert len(files_in(tmp_path)) < 30
    again = opened(tmp_path, None)
    assert read(again) == expected
    for skip in (1, 5, 100, 179, 180, 1_000):
        assert read(again, skip) == expected[skip:]
    assert again.channel.last_batch() == 89, "a batch that comes again is known"
    assert [row["message"] for row in newest_of([again], 3)] == expected[-3:]


def pages(stores: list[DeadLetterStore], limit: int) -> Iterator[LetterPage]:
    page = page_of(stores, limit, None, 50)
    yield page
    while page.before is not None:
        page = page_of(stores, limit, page.before, 50)
        yield page


def test_pages_join_to_all_messages_while_they_are_rolled_dropped_and_added(tmp_path: Path) -> None:
    stores = [opened(tmp_path / name) for name in ("one", "two")]
    for batch in range(30):
        for number, store in enumerate(stores):
            append(store, batch, *(f"{number}-{batch}-{each}" for each in range(number + 1)))
    for limit in (1, 7, 1_000):
        seen = [letter["message"] for page in pages(stores, limit) for letter in page.letters]
        assert len(seen) == len(set(seen)) == 90, limit
        for number in (0, 1):  # each fragment's own order, newest first
            mine = [int(text.split("-")[1]) for text in seen if text.startswith(f"{number}-")]
            assert mine == sorted(mine, reverse=True)
    dropping = DeadLetterStore(stores[0].channel, RetentionLimits(1, 1_000 * DAY_MS))
    seen, number = [], 100
    for page in pages(stores, 4):
        seen += [letter["message"] for letter in page.letters]
        append(stores[1], number, "new")
        number += 1
        stores[1].tidy()
        if number == 105:
            dropping.tidy()  # all but the newest of the first fragment
    assert "new" not in seen
    assert len(seen) == len(set(seen))
    assert [text for text in seen if text.startswith("1-")] == [
        f"1-{batch}-{each}" for batch in range(29, -1, -1) for each in (1, 0)
    ]


def test_long_messages_and_errors_are_cut_where_they_are_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    append(store, 0, "m" + "é" * 10_000, error="x" * 10_000 + "ValueError")
    [letter] = page_of([store], 10, None, 50).letters
    assert letter["message"] == "m" + "é" * 50
    assert letter["error"] == ("x" * 10_000 + "ValueError")[-51:]


def test_the_oldest_are_dropped_when_there_is_too_much_and_counted(tmp_path: Path) -> None:
    store = opened(tmp_path, RetentionLimits(60_000, DAY_MS))
    for batch in range(100):
        append(store, batch, f"{batch}", error=os.urandom(1_000).hex())
        store.tidy()
    assert sum(path.stat().st_size for path in files_in(tmp_path)) < 90_000
    kept = read(store)
    assert 5 < len(kept) < 100
    assert kept == [str(number) for number in range(100 - len(kept), 100)]
    assert store.dropped.messages == 100 - len(kept)


def test_what_is_too_old_is_dropped_but_for_the_newest_batch(tmp_path: Path) -> None:
    store = opened(tmp_path, RetentionLimits(1 << 30, DAY_MS))
    for batch in range(10):
        append(store, batch, str(batch))
        if batch < 7:
            for path in (tmp_path / "log").iterdir():
                os.utime(path, (1_000_000_000, 1_000_000_000))
        if batch == 5:
            opened(tmp_path, None).tidy()  # rolls, drops nothing
    store.tidy()
    assert read(store) == ["7", "8", "9"]
    assert store.dropped.messages == 7
    for path in (tmp_path / "log").iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = opened(tmp_path, RetentionLimits(1 << 30, DAY_MS))
    again.tidy()
    assert read(again) == ["9"]
    assert again.dropped.messages == 9


class Crash(BaseException):
    """The process is gone."""


@contextlib.contextmanager
def dying(left: list[int]) -> Iterator[None]:
    """Die after so many steps."""

    def told(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return call(*args, **kwargs)

        return counted

    with (
        patch.object(module, "publish_file", told(module.publish_file)),
        patch.object(Path, "unlink", told(Path.unlink)),
        patch.object(ChannelStore, "trim", told(ChannelStore.trim)),
        patch.object(DurableFile, "write", told(DurableFile.write)),
        patch.object(type(opened(Path("x")).channel.files), "delete", told(ChannelFilesDelete)),
    ):
        yield


ChannelFilesDelete = type(opened(Path("x")).channel.files).delete


def test_wherever_a_process_dies_each_message_is_kept_once_or_counted(tmp_path: Path) -> None:
    step, died = 0, True
    while died:
        directory = tmp_path / str(step)
        keep = RetentionLimits(9_000, DAY_MS)
        died, batch, left = False, 0, [step]
        while batch < 22:
            store = opened(directory, keep)
            try:
                with contextlib.nullcontext() if died else dying(left):
                    if batch > store.channel.last_batch():
                        append(store, batch, str(batch), error=os.urandom(400).hex())
                    store.tidy()
                batch += 1
            except Crash:
                died = True
            found = read(opened(directory, None))
            gone = opened(directory, None).dropped.messages
            until = store.channel.last_batch() + 1
            assert found == [str(number) for number in range(gone, until)], (step, batch)
        assert gone > 3
        step += 7 if died else 0
    assert step > 20


def test_a_reader_sees_each_message_once_while_they_are_rolled_and_merged(tmp_path: Path) -> None:
    for stop_after in range(0, 30, 5):
        directory = tmp_path / str(stop_after)
        store = opened(directory)
        for batch in range(30):
            append(store, batch, str(batch))
            if batch == 11:
                store.tidy()
        reading = opened(directory, None).batches()
        found = []
        for batch in reading:
            found += batch.column("message").to_pylist()
            if len(found) > stop_after:
                store.tidy()
                append(store, 30 + len(found), "later")
        assert found[:30] == [str(number) for number in range(30)]


def test_a_damaged_segment_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for batch in range(9):
        append(store, batch, str(batch))
    next((tmp_path / "segments").glob("f-2-*")).write_bytes(b"torn")
    opened(tmp_path).tidy()
    assert read(opened(tmp_path)) == [str(number) for number in range(9) if number != 2]


def test_no_room_is_told_as_such_and_nothing_is_lost(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for batch in range(9):
        append(store, batch, str(batch), error=os.urandom(3_000).hex())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))  # no file may become larger
    try:
        with pytest.raises(DiskFullError) as caught:
            store.tidy()
        with pytest.raises(DiskFullError):
            append(store, 9, "x", error=os.urandom(5_000).hex())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 4
    assert read(opened(tmp_path)) == [str(number) for number in range(9)]
    again = opened(tmp_path)
    again.channel.clean_orphans()
    append(again, 9, "x")
    again.tidy()
    assert read(again) == [*(str(number) for number in range(9)), "x"]
    assert not list((tmp_path / "rolled").glob(".*"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_while_it_is_synced_is_told_as_such(tmp_path: Path, number: int) -> None:
    store = opened(tmp_path)
    for batch in range(9):
        append(store, batch, str(batch))
    with (
        patch.object(module, "publish_file", side_effect=OSError(number, os.strerror(number))),
        pytest.raises(DiskFullError),
    ):
        store.tidy()
    assert read(opened(tmp_path)) == [str(number) for number in range(9)]
