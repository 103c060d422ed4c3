"""The stages of a change of a running application.

Problem: a change touches several fragments, which switch to the new version at different moments. The process
may be killed between any two of them, and the new code may fail in one fragment while another one already
runs it. Even then the whole application must end up with either the old version or the new one.

Design: one durable step decides. Before it nothing has changed; after it the new version is in force, and
every touched fragment switches to it before its next batch. The change is on trial until each of them has
committed a batch in which messages reached the new code. If one fails before that, a second durable step puts
the old version in force again, and the fragments switch back. A process that starts during the trial resumes
it. A fragment without messages does not keep the trial open for ever: after a time it counts as unproven.

Fragments that only the new version has start when it is in force, and are removed when it is rolled back.
Fragments that only the old version has run until the trial is over, because the application may return to
them; then they leave (`core.change.leaving`).

| stage | event | effects | next stage |
|---|---|---|---|
| idle | `ChangeProposed` | `RecordVersion` | proposed |
| idle | `ChangeResumed` | `UseVersion` of every touched fragment | on trial |
| proposed | `RecordingFailed` | `ReportOutcome` | idle |
| proposed | `VersionRecorded` | `StartFragment` of new ones, `UseVersion` of every touched one | on trial |
| on trial | `BatchBegan` | | on trial |
| on trial | `BatchCommitted`, `FragmentEnded`, `FragmentWaited` of the last | `RecordOutcome` | settling |
| on trial | `BatchFailed` of a fragment that has begun, is new, or restarts | `RecordOutcome` | going back |
| on trial | `ChangeGivenUp` | `RecordOutcome` | going back |
| settling | `OutcomeRecorded` | `DropFragment` of fragments that are gone, `ReportOutcome` | idle |
| going back | `OutcomeRecorded` | `DropFragment` of new ones, `UseVersion` of rest, `ReportOutcome` | idle |

Invariants:

1. There is one change at a time.
2. The new version is used only after it is recorded, the old one again only after the rollback is recorded.
3. A change is done only when every touched fragment has committed a batch that shows whether it works, has
   ended, or has waited for messages as long as a trial waits.
4. Only a fragment that has begun a batch with the new version, is new, or restarts can end the trial by
   failing.
5. A fragment starts only after the version is recorded, and leaves only after the outcome is.

Called by `spark.run.live_changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from drivetrain.core.change.change_events import (
    BatchBegan,
    BatchCommitted,
    BatchFailed,
    Change,
    ChangeGivenUp,
    ChangeProposed,
    ChangeResumed,
    DropFragment,
    Effect,
    Event,
    FragmentEnded,
    FragmentWaited,
    Outcome,
    OutcomeRecorded,
    RecordingFailed,
    RecordOutcome,
    RecordVersion,
    ReportOutcome,
    StartFragment,
    UseVersion,
    VersionRecorded,
)
from drivetrain.errors import InternalError


class Stage(StrEnum):
    """The stage of a change."""

    IDLE = "idle"
    PROPOSED = "proposed"
    ON_TRIAL = "on trial"
    SETTLING = "settling"
    GOING_BACK = "going back"


@dataclass
class _Trial:
    """The state of the change that is under way."""

    change: Change
    began: dict[str, int] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    """The fragments that the trial does not wait for any more."""
    unproven: set[str] = field(default_factory=set)
    """Those of them that got no message."""
    failed: str | None = None
    why: str | None = None


class LiveChange:
    """The change that is under way in one application, if any; see the module's table.

    >>> change = LiveChange()
    >>> change.step(ChangeProposed(Change(2, 1, frozenset({"counts"}))))[0].change.number
    2
    >>> change.step(VersionRecorded())
    [UseVersion(fragment='counts', number=2)]
    """

    def __init__(self) -> None:
        self.stage = Stage.IDLE
        self._trial: _Trial | None = None
        self._recorded = False

    @property
    def change(self) -> Change | None:
        """The change that is under way."""
        return None if self._trial is None else self._trial.change

    @property
    def awaited(self) -> tuple[str, ...]:
        """The touched fragments that have not shown yet whether the new version works, sorted."""
        trial = self._trial
        return () if trial is None else tuple(sorted(trial.change.touched - trial.settled))

    def step(self, event: Event) -> list[Effect]:
        """Take an event; returns its effects, in order. Raises InternalError if it is illegal."""
        take = _TABLE.get((self.stage, type(event)))
        if take is None:
            raise InternalError(f"{type(event).__name__} while a change is {self.stage}")
        effects = take(self, event)
        self.check()
        return effects

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        trial = self._trial
        if (trial is None) is not (self.stage is Stage.IDLE):
            raise InternalError(f"a change is {self.stage}, and the change is {trial}")
        if trial is None:
            return
        if (
            not {*trial.change.starts, *trial.change.restarts} <= trial.change.touched
            or {*trial.change.leaves} & trial.change.touched
        ):
            raise InternalError(f"a change does not touch what it starts, or touches what leaves: {trial}")
        if not {*trial.began, *trial.settled} <= trial.change.touched or not trial.unproven <= trial.settled:
            raise InternalError(f"fragments that it does not touch take part in a change: {trial}")
        if self.stage is Stage.SETTLING and self.awaited:
            raise InternalError(f"a change is done without {', '.join(self.awaited)}")
        may_fail = {*trial.began, *trial.change.may_fail_before_a_batch, None}
        if self.stage is Stage.GOING_BACK and trial.failed not in may_fail:
            raise InternalError(f"{trial.failed} ends a trial that it has not begun")
        if self.stage is not Stage.PROPOSED and not self._recorded:
            raise InternalError("a change takes effect before it is recorded")

    # -- transitions -----------------------------------------------------------------------------------

    def _proposed(self, event: ChangeProposed) -> list[Effect]:
        self._trial, self._recorded, self.stage = _Trial(event.change), False, Stage.PROPOSED
        return [RecordVersion(event.change)]

    def _resumed(self, event: ChangeResumed) -> list[Effect]:
        self._trial, self._recorded = _Trial(event.change), True
        return self._begin_trial()

    def _version_recorded(self, _: VersionRecorded) -> list[Effect]:
        self._recorded = True
        starts = [StartFragment(fragment) for fragment in self._under_way.change.starts]
        return [*starts, *self._begin_trial()]

    def _begin_trial(self) -> list[Effect]:
        self.stage = Stage.ON_TRIAL
        return [*self._use(self._under_way.change.number), *self._settle()]

    def _recording_failed(self, event: RecordingFailed) -> list[Effect]:
        return [ReportOutcome(self._end(), Outcome.REFUSED, None, event.why)]

    def _began(self, event: BatchBegan) -> list[Effect]:
        self._require_touched(event.fragment)
        self._under_way.began.setdefault(event.fragment, event.batch_id)
        return []

    def _committed(self, event: BatchCommitted) -> list[Effect]:
        if event.fragment not in self._under_way.began:
            raise InternalError(f"{event.fragment} commits a batch that it has not begun")
        self._under_way.settled.add(event.fragment)
        self._under_way.unproven.discard(event.fragment)
        return self._settle()

    def _ended(self, event: FragmentEnded) -> list[Effect]:
        self._require_touched(event.fragment)
        self._under_way.settled.add(event.fragment)
        return self._settle()

    def _waited(self, event: FragmentWaited) -> list[Effect]:
        self._require_touched(event.fragment)
        if event.fragment not in self._under_way.settled:
            self._under_way.settled.add(event.fragment)
            self._under_way.unproven.add(event.fragment)
        return self._settle()

    def _settle(self) -> list[Effect]:
        if self.awaited:
            return []
        self.stage = Stage.SETTLING
        return [RecordOutcome(self._under_way.change, Outcome.DONE)]

    def _failed(self, event: BatchFailed) -> list[Effect]:
        trial = self._under_way
        if event.fragment not in (*trial.began, *trial.change.may_fail_before_a_batch):
            return []  # the old version failed, or a fragment that is not part of the change
        trial.failed, trial.why, self.stage = event.fragment, event.why, Stage.GOING_BACK
        return [RecordOutcome(trial.change, Outcome.ROLLED_BACK, event.fragment, event.why)]

    def _given_up(self, event: ChangeGivenUp) -> list[Effect]:
        trial = self._under_way
        trial.why, self.stage = event.why, Stage.GOING_BACK
        return [RecordOutcome(trial.change, Outcome.ROLLED_BACK, None, event.why)]

    def _settled(self, _: OutcomeRecorded) -> list[Effect]:
        unproven = tuple(sorted(self._under_way.unproven))
        leaves = [DropFragment(fragment, goes_back=False) for fragment in self._under_way.change.leaves]
        return [*leaves, ReportOutcome(self._end(), Outcome.DONE, unproven=unproven)]

    def _went_back(self, _: OutcomeRecorded) -> list[Effect]:
        trial = self._under_way
        leaves = [DropFragment(fragment, goes_back=True) for fragment in trial.change.starts]
        back = [use for use in self._use(trial.change.before) if use.fragment not in trial.change.starts]
        return [*leaves, *back, ReportOutcome(self._end(), Outcome.ROLLED_BACK, trial.failed, trial.why)]

    # -- parts -----------------------------------------------------------------------------------------

    @property
    def _under_way(self) -> _Trial:
        assert self._trial is not None
        return self._trial

    def _use(self, number: int) -> list[UseVersion]:
        return [UseVersion(fragment, number) for fragment in sorted(self._under_way.change.touched)]

    def _end(self) -> Change:
        change = self._under_way.change
        self._trial, self.stage = None, Stage.IDLE
        return change

    def _require_touched(self, fragment: str) -> None:
        if fragment not in self._under_way.change.touched:
            raise InternalError(f"the change does not touch {fragment}")


_TABLE: Final[dict[tuple[Stage, type], Callable[..., list[Effect]]]] = {
    (Stage.IDLE, ChangeProposed): LiveChange._proposed,
    (Stage.IDLE, ChangeResumed): LiveChange._resumed,
    (Stage.PROPOSED, VersionRecorded): LiveChange._version_recorded,
    (Stage.PROPOSED, RecordingFailed): LiveChange._recording_failed,
    (Stage.ON_TRIAL, BatchBegan): LiveChange._began,
    (Stage.ON_TRIAL, BatchCommitted): LiveChange._committed,
    (Stage.ON_TRIAL, FragmentEnded): LiveChange._ended,
    (Stage.ON_TRIAL, FragmentWaited): LiveChange._waited,
    (Stage.ON_TRIAL, BatchFailed): LiveChange._failed,
    (Stage.ON_TRIAL, ChangeGivenUp): LiveChange._given_up,
    (Stage.SETTLING, OutcomeRecorded): LiveChange._settled,
    (Stage.GOING_BACK, OutcomeRecorded): LiveChange._went_back,
}
