"""The history of a change, as data and in words."""

from __future__ import annotations

from drivetrain.core.change.change_stages import ChangeStage, in_words, with_durations

STAGES = (
    ChangeStage("proposed", 1_000),
    ChangeStage("compiled", 4_000),
    ChangeStage("in force", 4_050),
    ChangeStage("begun", 3_900, "orders"),
)


def test_each_stage_took_the_time_since_the_one_before_it() -> None:
    assert [data["took_ms"] for data in with_durations(STAGES)] == [0, 3_000, 50, 0]
    assert [data["fragment"] for data in with_durations(STAGES)] == [None, None, None, "orders"]
    assert with_durations(()) == []


def test_in_words_it_is_one_line() -> None:
    expected = "proposed, compiled after 3.0 s, in force after 50 ms, orders begun after 0 ms"
    assert in_words(STAGES) == expected
    assert in_words(()) == ""
