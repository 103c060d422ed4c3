"""How far Spark's own reader has come, by the log that Spark keeps."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import cast

import pyarrow.fs as pafs
import pytest
from pyspark.sql import DataFrame

from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.native_files import NativeFiles
from drivetrain.connectors.files.text_check import TextCheck
from drivetrain.errors import InputError
from drivetrain.runtime.file_locations import FoundFile

FILES = 20


def taken(tmp_path: Path) -> NativeFiles:
    log = FileLog(pafs.LocalFileSystem(), str(tmp_path / "log"))
    log.append((FoundFile(f"/in/{n}", 10), False) for n in range(FILES))
    return NativeFiles(cast(DataFrame, None), log, str(tmp_path / "spark"), has_end_row=False)


def note(tmp_path: Path, name: str, *entries: tuple[int, int]) -> None:
    """Write a file of Spark's log: pairs of a file's number and its batch."""
    (tmp_path / "spark").mkdir(exist_ok=True)
    rows = [json.dumps({"path": f"/in/{n}", "timestamp": n, "batchId": batch}) for n, batch in entries]
    (tmp_path / "spark" / name).write_text("\n".join(["v1", *rows]))


def offset(batch: int) -> str:
    return json.dumps({"logOffset": batch})


def test_every_offset_has_its_own_position_in_whatever_order_they_are_asked(tmp_path: Path) -> None:
    position = taken(tmp_path).position
    for batch in range(FILES):
        note(tmp_path, str(batch), (batch, batch))
    assert not position(None).finished
    for batch in (FILES - 1, 3, FILES - 2, 0, FILES - 1):
        assert position(offset(batch)).done == 10 * (batch + 1)
        assert position(offset(batch)).finished is (batch == FILES - 1)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_compacted_log_says_the_same(tmp_path: Path, deleted: bool) -> None:
    position = taken(tmp_path).position
    for batch in range(9):
        if not deleted:
            note(tmp_path, str(batch), (batch, batch))
    note(tmp_path, "9.compact", *((n, n) for n in range(10)))
    assert position(offset(9)).done == 100
    assert position(offset(4)).done == 50


def test_a_thread_that_asks_of_the_next_batch_does_not_end_the_one_before(tmp_path: Path) -> None:
    for _ in range(30):
        fresh = taken(tmp_path)
        for batch in range(FILES):
            note(tmp_path, str(batch), (batch, batch))
        wrong: list[bool] = []
        asker = threading.Thread(target=fresh.position, args=(offset(FILES - 1),))
        asker.start()
        wrong += [fresh.position(offset(FILES - 2)).finished for _ in range(50)]
        asker.join()
        assert not any(wrong)


def test_after_a_restart_only_files_that_are_not_committed_are_looked_through(tmp_path: Path) -> None:
    log = FileLog(pafs.LocalFileSystem(), str(tmp_path / "log"))
    paths = [tmp_path / f"{number}.txt" for number in range(3)]
    for path in paths:
        path.write_bytes(b"n\xe4sty\n")
    log.append((FoundFile(str(path), 6), False) for path in paths)
    for batch in range(3):
        note(tmp_path, str(batch), (batch, batch))
    text = TextCheck(tmp_path)
    opened = NativeFiles(cast(DataFrame, None), log, str(tmp_path / "spark"), text, has_end_row=False)
    opened.committed(offset(1))
    opened.check(offset(1))
    with pytest.raises(InputError, match=r"2\.txt, line 1"):
        opened.check(offset(2))
    paths[2].write_bytes(b"nasty\n")
    opened.check(offset(2))
