"""Spark's log of a query's batches: what outlasts a power failure, and a log that is too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.errors import InputError
from drivetrain.spark.session import offset_log
from drivetrain.spark.session.offset_log import make_durable, require_newest


def planned(checkpoint: Path, *batches: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (checkpoint / "offsets" / str(batch)).write_text("v1")


def test_a_log_that_is_older_than_an_output_is_refused(tmp_path: Path) -> None:
    outputs = {"channel a": 5, "sink b": -1}
    require_newest(tmp_path, {"sink b": -1})
    for batch in (5, 4):  # the last one is the final batch, which Spark does not number
        planned(tmp_path, batch)
        require_newest(tmp_path, outputs)
        (tmp_path / "offsets" / str(batch)).unlink()
    planned(tmp_path, 2, 3)
    with pytest.raises(InputError, match="older than what its outputs have") as refused:
        require_newest(tmp_path, outputs)
    assert refused.value.expected == "batches up to 5, which channel a has"
    assert refused.value.got == "batches up to 3"


@pytest.mark.parametrize("has_checksum", [False, True])
def test_the_extent_of_a_batch_is_synced_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_checksum: bool
) -> None:
    planned(tmp_path, 6, 7)
    if has_checksum:
        (tmp_path / "offsets" / ".7.crc").touch()
    synced: list[str] = []
    monkeypatch.setattr(offset_log, "sync", lambda path: synced.append(path.name))
    make_durable(tmp_path, 7)
    assert synced == ["7", *([".7.crc"] if has_checksum else []), "offsets"]
