"""A change of the number of partitions of one fragment's state: its stages, as data and as text for users.

Problem: the number of a fragment's state partitions bounds how many cores work on it at once, and is fixed
when it starts. To change it, the state has to be moved while the fragment is stopped, and the process may die
in the middle.

Design: the fragment's query is drained as for another trunk; its state is divided again in a copy of its
checkpoint, which takes the place of the checkpoint in one step (`runtime.state.divided_state`); then
the next query continues from there. All other fragments keep running.

| stage | event | next stage |
|---|---|---|
| idle | `asked` | waiting |
| waiting | `drained`: no batch runs, all are committed | dividing |
| waiting | `ended`: the fragment has finished, or is gone | idle |
| dividing | `ended`: the next query runs; with a reason if the state is as it was | idle |

Invariants:

1. One fragment is scaled at a time, and no graph changes meanwhile.
2. A state is divided only between two batches of its fragment.

Called by `spark.run.divided_fragment` and `scaling`, and by application masters; `ScalingState` is shown by
commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from drivetrain.core.figures import show_counted, show_size, show_span
from drivetrain.errors import InternalError, UnavailableError, UserError

MOST_PARTITIONS = 1_000
"""More partitions than that make every batch slow: each has files of its own."""


class ScalingStage(StrEnum):
    """The stage of a scaling."""

    IDLE = "idle"
    WAITING = "waiting for the running batch"
    DIVIDING = "dividing the state"


class ScalingState(msgspec.Struct, frozen=True):
    """A scaling of `fragment` from `before` to `after` state partitions, the current or last one of a run.

    `bytes` is the size of the state's files before it. `took_ms` is how long dividing took, `paused_ms` how
    long the fragment stood still; both are 0 until it has ended, and afterwards if its process has died
    meanwhile. `why` is why the state is as it was. `id` names it in a cluster.
    """

    fragment: str
    before: int
    after: int
    bytes: int = 0
    stage: ScalingStage = ScalingStage.WAITING
    took_ms: int = 0
    paused_ms: int = 0
    why: str | None = None
    id: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.stage is ScalingStage.IDLE

    def drained(self) -> ScalingState:
        """The fragment stands still, and its state is being divided."""
        self._require(ScalingStage.WAITING)
        return msgspec.structs.replace(self, stage=ScalingStage.DIVIDING)

    def ended(self, took_ms: int = 0, paused_ms: int = 0, why: str | None = None) -> ScalingState:
        """The next query of the fragment runs, or there will be none."""
        self._require(ScalingStage.WAITING, ScalingStage.DIVIDING)
        if self.stage is ScalingStage.WAITING and why is None:
            raise InternalError(f"the state of {self.fragment} is divided while batches run")
        how = {"took_ms": took_ms, "paused_ms": paused_ms, "why": why}
        return msgspec.structs.replace(self, stage=ScalingStage.IDLE, **how)

    def _require(self, *stages: ScalingStage) -> None:
        if self.stage not in stages:
            raise InternalError(f"the scaling of {self.fragment} is {self.stage}")

    @property
    def in_words(self) -> str:
        """How it stands, in a line.

        >>> ScalingState("hourly", 2, 8, 3_000_000).in_words
        'fragment hourly is to have 8 state partitions, not 2: waiting for the running batch'
        """
        if not self.is_over:
            return (
                f"fragment {self.fragment} is to have {self.after} state partitions, not {self.before}: "
                f"{self.stage}"
            )
        if self.why is not None:
            return f"fragment {self.fragment} keeps {self.before} state partitions: {self.why}"
        has = f"fragment {self.fragment} has {self.after} state partitions, before {self.before}: its state, "
        has += show_size(self.bytes)
        if not self.paused_ms:
            return f"{has}, was divided before its process ended, so how long it paused is not known"
        return (
            f"{has}, was divided in {show_span(self.took_ms)}, and it paused for {show_span(self.paused_ms)}"
        )


class PlannedScaling(msgspec.Struct, frozen=True):
    """A scaling as it would be: `fragment` from `before` to `after` state partitions.

    `bytes` is the size of the state's files. `likely_pause_ms` is how long the fragment would stand still,
    judged by earlier scalings of the application; None: there is none.
    """

    fragment: str
    before: int
    after: int
    bytes: int
    likely_pause_ms: int | None = None

    @property
    def in_words(self) -> str:
        """What would happen, in a line.

        >>> PlannedScaling("hourly", 2, 8, 3_000_000).in_words
        'fragment hourly: its state, 3 MB in 2 partitions, is divided into 8; only this fragment pauses'
        """
        pause = "" if self.likely_pause_ms is None else f", for about {show_span(self.likely_pause_ms)}"
        return (
            f"fragment {self.fragment}: its state, {show_size(self.bytes)} in "
            f"{show_counted(self.before, 'partition')}, is divided into {self.after}; only this fragment "
            f"pauses{pause}"
        )


def likely_pause_ms(earlier: Iterable[ScalingState], size_bytes: int) -> int | None:
    """How long a fragment with a state of that size is likely to stand still; None without earlier scalings.

    Judged by the newest one: dividing takes time in proportion to the size, the rest of a pause does not.

    >>> likely_pause_ms([ScalingState("hourly", 2, 8, 1_000, took_ms=1_000, paused_ms=3_000)], 2_000)
    4000
    """
    known = [scaling for scaling in earlier if scaling.why is None and scaling.paused_ms]
    if not known:
        return None
    last = known[-1]
    share = size_bytes / last.bytes if last.bytes else 1.0
    return int(last.paused_ms - last.took_ms + last.took_ms * share)


def no_such_fragment(application: str, known: Iterable[str], name: str) -> UserError:
    """The error for a name that is neither that of a `known` fragment nor of a processor in one."""
    return UserError(
        "the application has no such fragment",
        where=application,
        expected=f"one of {', '.join(sorted(known))}, or a processor of one",
        got=name,
        remedy="drivetrain plan shows the fragments",
    )


def planned_scaling(state: ScalingState, earlier: Iterable[ScalingState]) -> PlannedScaling:
    """A scaling that could begin, judged by earlier ones of the application, the newest last.

    >>> planned_scaling(ScalingState("hourly", 2, 8, 3_000_000), []).bytes
    3000000
    """
    likely_ms = likely_pause_ms(earlier, state.bytes)
    return PlannedScaling(state.fragment, state.before, state.after, state.bytes, likely_ms)


class CompletedScaling(msgspec.Struct, frozen=True):
    """A scaling that is done, as it is kept: at `at_ms` (ms since 1970), by the user `by`."""

    at_ms: int
    by: str
    of: ScalingState


def require_scaled(state: ScalingState) -> ScalingState:
    """A scaling that is done; raises UserError if it has failed, UnavailableError if it continues."""
    if not state.is_over:
        raise UnavailableError(
            "the scaling has not ended",
            got=state.in_words,
            remedy="it continues: drivetrain versions shows it",
        )
    if state.why is not None:
        raise UserError(
            f"fragment {state.fragment} keeps {show_counted(state.before, 'state partition')}",
            got=state.why,
            remedy="it runs on as before: remove the cause, and scale it again",
        )
    return state
