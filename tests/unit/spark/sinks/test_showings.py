"""Records of what a file sink in an object store shows: what they repeat of former processes is bounded."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pytest

from drivetrain.connectors.files import showings
from drivetrain.connectors.files.showings import Showings, ShownGroup


def test_names_of_former_processes_are_bounded_and_the_last_ones_are_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showings, "MOST_NAMES", 3)
    filesystem, place = pafs.LocalFileSystem(), str(tmp_path)
    for number in range(6):
        process, claim = Showings(filesystem, place), f"{number:04}"
        process.take_over(claim, is_copied=True)
        process.undone([claim], claim)
        assert process.decide([ShownGroup(f"part-{number}", 0, ())], [claim], claim)
    Showings(filesystem, place).begin_anew("0009", is_copied=True)
    assert Showings(filesystem, place).read_gone() == ("part-3", "part-4", "part-5")
