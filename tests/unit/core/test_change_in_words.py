"""What is under way in an application, in words."""

from __future__ import annotations

import pytest

from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.message_history import HistoryState
from drivetrain.core.change.scaling_state import ScalingState

HISTORY = HistoryState(0, ("hourly",), rows=3)
READ = "the messages from 1970-01-01T00:00:00+00:00 on are read again: 3 messages so far"
HANDOVER = {"at_ms": 60_000, "both": ("hourly",), "clock_ms": 30_000}
TAKES_EFFECT = "takes effect at 1970-01-01T00:01:00+00:00; the clock is at 1970-01-01T00:00:30+00:00"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ChangeState(2), None),
        (ChangeState(2, number=2, outcome=Outcome.DONE), None),
        (ChangeState(2, number=3, history=HISTORY), f"version 3 comes into force when {READ}"),
        (ChangeState(2, number=3, history=HISTORY, outcome=Outcome.REFUSED), None),
        (ChangeState(3, Stage.ON_TRIAL, 3), "version 3 is on trial"),
        (
            ChangeState(3, Stage.ON_TRIAL, 3, awaited=("a", "b")),
            "version 3 is on trial, waiting for messages in a, b",
        ),
        (ChangeState(3, Stage.ON_TRIAL, 3, **HANDOVER), f"version 3 is on trial; it {TAKES_EFFECT}"),
        (ChangeState(3, number=3, **HANDOVER), f"version 3 {TAKES_EFFECT}"),
    ],
)
def test_a_change_that_is_under_way(state: ChangeState, words: str | None) -> None:
    assert state.in_words == words


def test_a_scaling_that_is_under_way() -> None:
    scaling = ScalingState("hourly", 4, 8)
    assert ChangeState(2, scaling=scaling).in_words == scaling.in_words
