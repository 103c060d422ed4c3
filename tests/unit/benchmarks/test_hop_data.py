"""What the hop benchmarks compare with is right, and wrong results are refused."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import hop
from benchmarks.hop_latency import LINES_PER_FILE, Feeder
from benchmarks.measure import Scale, WrongResultError

QUICK = Scale(quick=True)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    monkeypatch.setattr(hop, "messages", lambda _scale: 32_000)
    return tmp_path


def test_every_message_is_in_one_expected_window(small: Path) -> None:
    wanted = hop.expected(hop.directory(QUICK))
    assert sum(wanted["n"].to_pylist()) == 32_000
    assert set(wanted["total"].to_pylist()) == {n * hop.PAYLOAD_BYTES for n in wanted["n"].to_pylist()}
    assert all(ms % 60_000 == 0 for ms in wanted["window"].to_pylist())


def test_windows_are_compared_whoever_wrote_them(small: Path) -> None:
    (small / "out").mkdir()
    wanted = hop.expected(hop.directory(QUICK))
    starts = wanted["window"].cast(pa.timestamp("ms", "UTC"))
    for name in ("window", "window_start"):
        pq.write_table(wanted.drop("window").append_column(name, starts), small / "out" / "a.parquet")
        hop.check(QUICK, small)
    pq.write_table(
        wanted.slice(1).drop("window").append_column("window", starts.slice(1)), small / "out" / "a.parquet"
    )
    with pytest.raises(WrongResultError, match="rows instead of"):
        hop.check(QUICK, small)


def test_a_line_that_comes_twice_or_never_is_refused(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "lines", 1)
    feeder.start()
    deadline = time.monotonic() + 20
    while not (tmp_path / "lines" / "part-000.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    lines = (tmp_path / "lines" / "part-000.txt").read_text().splitlines()
    assert len(lines) == LINES_PER_FILE
    feeder.take(lines[:5])
    with pytest.raises(WrongResultError, match="5 of 20 lines were seen"):
        feeder.figures(1.0)
    with pytest.raises(WrongResultError, match="twice"):
        feeder.take(lines)
