"""The file in which an embedded run keeps its clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.errors import InputError, OutputError
from drivetrain.runtime.clock_file import ClockFile


def test_what_was_written_is_read_and_nothing_before(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "clock")
    assert file.read() is None
    for clock_ms in (5, -62135596800000, 253402214400000):
        file.write(clock_ms)
        assert ClockFile(tmp_path / "clock").read() == clock_ms


@pytest.mark.parametrize("damage", ["", "12", "12 00000000", "garbage", "\x00" * 20])
def test_a_damaged_file_is_not_believed(tmp_path: Path, damage: str) -> None:
    (tmp_path / "clock").write_text(damage)
    with pytest.raises(InputError, match="cannot be read") as raised:
        ClockFile(tmp_path / "clock").read()
    assert "delete the file" in (raised.value.remedy or "")


def test_what_a_crash_left_beside_it_counts_for_nothing(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "clock")
    file.write(5)
    (tmp_path / ".clock.tmp").write_text("99 half a wri")
    assert file.read() == 5
    file.write(6)
    assert file.read() == 6


def test_a_clock_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        ClockFile(tmp_path / "missing" / "clock").write(5)
