"""The transcripts of cores: what goes in and what comes out, as text that people can review."""

from __future__ import annotations

from pathlib import Path

import pytest
from players import CheckpointPlayer, ClockPlayer, ElectionPlayer, FlowPlayer
from transcript import check

HERE = Path(__file__).parent
PLAYERS = {
    "election": ElectionPlayer,
    "checkpoint": CheckpointPlayer,
    "flow": FlowPlayer,
    "clock": ClockPlayer,
}


def test_every_transcript_has_a_core() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(PLAYERS)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_core_does_what_its_transcript_says(name: str) -> None:
    check(HERE / f"{name}.txt", PLAYERS[name])


def test_a_transcript_that_differs_fails_and_is_rewritten_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clock.txt"
    path.write_text("new\n0  TimePassed()\n      -> AnnounceClock(clock_ms=1)\n")
    monkeypatch.delenv("TESTS_REWRITE", raising=False)
    with pytest.raises(AssertionError, match="TESTS_REWRITE=1"):
        check(path, ClockPlayer)
    monkeypatch.setenv("TESTS_REWRITE", "1")
    check(path, ClockPlayer)
    assert path.read_text() == "new\n      =  clock None, lowest None\n0  TimePassed()\n"
    monkeypatch.delenv("TESTS_REWRITE")
    check(path, ClockPlayer)
