"""The history of a change: which stages it went through, when, and how long each took.

Design: a stage is recorded when it is reached. Its duration is the time since the previous stage, whichever
fragment reached that.

Called by `runtime.graph_versions`, which keeps them, `spark.run.live_changes`, which records them, and by
`runtime.version_history` and `core.change.change_state`, which show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from drivetrain.core.change.change_events import BatchBegan, BatchCommitted, Event, FragmentWaited
from drivetrain.core.figures import show_span


class StageName(StrEnum):
    """A stage of a change; its last stage is the text of its outcome."""

    PROPOSED = "proposed"
    COMPILED = "compiled"
    HISTORY_READ = "former messages read"
    IN_FORCE = "in force"
    RESUMED = "resumed"
    """Another process has resumed the trial."""
    BEGUN = "begun"
    """A fragment has begun its first batch with the version."""
    SHOWN = "committed"
    """A fragment has committed a batch in which messages reached the version."""
    UNPROVEN = "got no message"
    """No message has reached the version in a fragment for as long as a trial waits."""
    HANDED_OVER = "handed over"


class ChangeStage(msgspec.Struct, frozen=True):
    """A stage that a change has reached at `at_ms` (ms since 1970), of one fragment or (empty) of all."""

    stage: str
    at_ms: int
    fragment: str = ""


def unproven(stages: Sequence[ChangeStage]) -> tuple[str, ...]:
    """The fragments that no message has reached during the trial, sorted.

    >>> unproven([ChangeStage("got no message", 1_000, "hourly"), ChangeStage("committed", 2_000, "orders")])
    ('hourly',)
    """
    reached = {one.fragment for one in stages if one.stage == StageName.SHOWN}
    return tuple(sorted({one.fragment for one in stages if one.stage == StageName.UNPROVEN} - reached))


def stage_of(event: Event) -> tuple[StageName, str] | None:
    """The stage that an event shows, and its fragment; None if it shows none of a fragment.

    >>> stage_of(BatchBegan("orders", 7))
    (<StageName.BEGUN: 'begun'>, 'orders')
    """
    match event:
        case BatchBegan(fragment):
            return StageName.BEGUN, fragment
        case BatchCommitted(fragment):
            return StageName.SHOWN, fragment
        case FragmentWaited(fragment):
            return StageName.UNPROVEN, fragment
        case _:
            return None


def with_durations(stages: Sequence[ChangeStage]) -> list[dict[str, object]]:
    """The stages as plain data, each with the ms since the one before it; 0 for the first.

    >>> with_durations([ChangeStage("proposed", 1_000), ChangeStage("compiled", 3_500)])[1]["took_ms"]
    2500
    """
    made: list[dict[str, object]] = []
    before_ms = stages[0].at_ms if stages else 0
    for one in stages:
        took_ms = max(0, one.at_ms - before_ms)  # a clock may have been set back
        made.append(
            {"stage": one.stage, "fragment": one.fragment or None, "at_ms": one.at_ms, "took_ms": took_ms}
        )
        before_ms = one.at_ms
    return made


def in_words(stages: Sequence[ChangeStage]) -> str:
    """The stages in one line, each with how long it took.

    >>> in_words([ChangeStage("proposed", 1_000), ChangeStage("begun", 3_500, "orders")])
    'proposed, orders begun after 2.5 s'
    """
    words: list[str] = []
    for data, one in zip(with_durations(stages), stages, strict=True):
        named = f"{one.fragment} {one.stage}".strip()
        took = data["took_ms"]
        words.append(f"{named} after {show_span(took)}" if words and isinstance(took, int) else named)
    return ", ".join(words)
