"""The pause of fragments before versions hand over, as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.errors import InputError
from drivetrain.runtime.handover_pause import FILE, HandoverPause, HandoverPauseFile

PAUSE = HandoverPause("0" * 32, 3, ("counts", "read"))


def test_a_pause_is_there_until_it_is_removed(tmp_path: Path) -> None:
    file = HandoverPauseFile(tmp_path)
    assert file.read() is None
    file.remove()
    file.write(PAUSE)
    assert HandoverPauseFile(tmp_path).read() == PAUSE
    file.remove()
    assert HandoverPauseFile(tmp_path).read() is None


def test_a_pause_is_over_once_its_version_is_recorded() -> None:
    assert not PAUSE.is_over(None)
    over = {number: PAUSE.is_over(GraphVersion("shop", {}, {}, number)) for number in (2, 3, 4)}
    assert over == {2: False, 3: True, 4: True}


def test_a_damaged_pause_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"x")
    with pytest.raises(InputError) as caught:
        HandoverPauseFile(tmp_path).read()
    assert "delete the file" in str(caught.value.remedy)
