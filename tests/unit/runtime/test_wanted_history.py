"""The former messages that a change in a cluster waits for, as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.errors import InputError
from drivetrain.runtime.wanted_history import FILE, WantedHistory, WantedHistoryFile

WANTED = WantedHistory("0" * 32, 3, {"read": ("tap--more", "tap--other")})


def test_a_history_is_wanted_until_the_file_is_removed(tmp_path: Path) -> None:
    file = WantedHistoryFile(tmp_path)
    assert file.read() is None
    file.remove()
    file.write(WANTED)
    assert WantedHistoryFile(tmp_path).read() == WANTED
    file.remove()
    assert WantedHistoryFile(tmp_path).read() is None


def test_a_history_is_over_once_its_version_is_recorded() -> None:
    assert not WANTED.is_over(None)
    over = {number: WANTED.is_over(GraphVersion("shop", {}, {}, number)) for number in (2, 3, 4)}
    assert over == {2: False, 3: True, 4: True}


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"x")
    with pytest.raises(InputError) as caught:
        WantedHistoryFile(tmp_path).read()
    assert "delete the file" in str(caught.value.remedy)
