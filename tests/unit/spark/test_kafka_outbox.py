"""What a transactional sink keeps on disk, as another process finds it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Publication
from drivetrain.errors import InternalError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.segments import MessageLossError, write_segment


def segment(state: Path, *values: bytes) -> Segment:
    columns = {"value": pa.array(values), TS: pa.array([0] * len(values), pa.timestamp("us", "UTC"))}
    return write_segment(ChannelFiles(str(state / "outbox")), "out", pa.table(columns).to_batches())


def said(outbox: Outbox, batch: int) -> list[bytes]:
    prepared = outbox.prepared(batch)
    assert prepared is not None
    return [value for part in outbox.messages(prepared) for value in part.column("value").to_pylist()]


def arrows(state: Path) -> set[str]:
    return {path.name for path in (state / "outbox").rglob("*.arrow")}


def test_prepared_batches_are_found_by_the_next_process_and_preparing_again_replaces(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path), "out")
    outbox.prepare(PreparedBatch(10, (segment(tmp_path, b"a"), segment(tmp_path, b"b"))))
    outbox.prepare(PreparedBatch(9, (segment(tmp_path, b"old"),)))
    outbox.prepare(PreparedBatch(9, (segment(tmp_path, b"new", b"er"),)))
    found = Outbox(str(tmp_path), "out")
    assert found.batches() == [9, 10]
    assert said(found, 9) == [b"new", b"er"]
    assert said(found, 10) == [b"a", b"b"]
    assert len(arrows(tmp_path)) == 3
    found.drop(9)
    found.drop(9)
    assert found.batches() == [10]
    assert found.prepared(9) is None
    assert len(arrows(tmp_path)) == 2


def test_what_a_process_had_not_finished_is_removed_and_what_is_prepared_is_not(tmp_path: Path) -> None:
    kept = segment(tmp_path, b"kept")
    Outbox(str(tmp_path), "out").prepare(PreparedBatch(1, (kept,)))
    segment(tmp_path, b"half")
    outbox = Outbox(str(tmp_path), "out")
    outbox._clean()
    assert arrows(tmp_path) == {Path(kept.path).name}
    assert said(outbox, 1) == [b"kept"]


def test_a_segment_that_has_changed_is_never_sent(tmp_path: Path) -> None:
    written = segment(tmp_path, b"right")
    outbox = Outbox(str(tmp_path), "out")
    outbox.prepare(PreparedBatch(1, (written,)))
    path = tmp_path / "outbox" / written.path
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(MessageLossError):
        said(outbox, 1)


def test_the_note_survives_and_its_token_is_drawn_once(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "new"), "out")
    assert outbox.publication() is None
    begun = outbox.begin()
    assert Outbox(str(tmp_path / "new"), "out").begin() == begun
    outbox.keep(begun.began(3))
    assert Outbox(str(tmp_path / "new"), "out").publication() == Publication(begun.token, -1, 3)
    with pytest.raises(InternalError):
        outbox.keep(Publication(begun.token, 3, 3))
    outbox.forget()
    assert outbox.publication() is None
    assert outbox.begin().token != begun.token
