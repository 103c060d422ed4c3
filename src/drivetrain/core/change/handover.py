"""The handover of messages from one version to the next, at an event time T.

Problem: a change may take effect at an event time rather than with the next batch. Messages come in
any order within the declared disorder, so for a while a fragment gets messages from both sides of T.
Fragments reach T at different moments, and the process may be killed between any two steps.

Design: the version of the change is recorded with T while no affected fragment runs a batch. From its next
batch on, an affected fragment runs both versions: the old one with the messages before T, the new one with
the others. Once the clock of its newest committed batch has reached T, no message before T is expected any
more, and the fragment runs the new version alone. The handover is over when every affected fragment does.

| stage of a fragment | event | effects | next stage |
|---|---|---|---|
| | `HandoverBegun` | `RunBothVersions`; `RunNewVersion` if it ran alone before a crash | both, or alone |
| both | `FragmentCommitted`, the clock has reached T | `ConfirmFragment`, `RunNewVersion` | alone |
| both | `FragmentCommitted` with messages of the new version | `ConfirmFragment` | both |
| both | `FragmentInputEnded` | `ConfirmFragment` | alone |

`ReportHandoverEnd` comes with the last fragment that reaches "alone". `ConfirmFragment` means that the
fragment has shown that the new version works, or cannot show it any more: the trial of the change waits for
that.

Invariants:

1. A fragment runs alone only if its clock has reached T, or it has ended, or it ran alone before.
2. A fragment that runs alone never runs both again.
3. Each fragment proves the change at most once, and before it runs alone.
4. The handover is over exactly when every affected fragment runs alone.

Called by `spark.run.handovers`, and for `time_given` by the command `update` and by `running_application`.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal, TypeAlias

from drivetrain.api.moments import moment_ms
from drivetrain.errors import InternalError


@dataclass(frozen=True)
class Handover:
    """Version `before` hands over to version `number` at `at_ms`, in the fragments `touched`."""

    number: int
    before: int
    at_ms: int
    touched: frozenset[str]


ChangeTime: TypeAlias = int | Literal["next-window"] | None
"""When a change takes effect: an event time in ms since 1970, or the next boundary of the windows
before what changes. None: with the next batch."""


def time_given(at: str | int | dt.datetime) -> ChangeTime:
    """When a change takes effect, as users write it: a moment, "next-window" or "now"; raises UserError.

    >>> time_given("1970-01-01T00:01"), time_given("now")
    (60000, None)
    """
    if at == "now":
        return None
    return "next-window" if at == "next-window" else moment_ms(at, "at")


# -- events -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HandoverBegun:
    """The version is recorded with its time; `alone` are the fragments that ran it alone before a crash."""

    handover: Handover
    alone: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FragmentCommitted:
    """The progress of a fragment with its newest committed batch: its clock, and whether the new version got
    a message in a batch up to that one."""

    fragment: str
    clock_ms: int | None
    has_new: bool


@dataclass(frozen=True)
class FragmentInputEnded:
    """A fragment has read all its input."""

    fragment: str


Event: TypeAlias = HandoverBegun | FragmentCommitted | FragmentInputEnded

# -- effects ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunBothVersions:
    """Have a fragment run both versions from its next batch on."""

    fragment: str


@dataclass(frozen=True)
class RunNewVersion:
    """Have a fragment run the new version alone from its next batch on."""

    fragment: str


@dataclass(frozen=True)
class ConfirmFragment:
    """A fragment has proved the change, for its trial."""

    fragment: str


@dataclass(frozen=True)
class ReportHandoverEnd:
    """The old version has ended everywhere."""

    handover: Handover


Effect: TypeAlias = RunBothVersions | RunNewVersion | ConfirmFragment | ReportHandoverEnd


class HandoverStages:
    """The handover that is under way in one application, if any; see the module's table.

    >>> stages = HandoverStages()
    >>> stages.step(HandoverBegun(Handover(2, 1, 5_000, frozenset({"counts"}))))
    [RunBothVersions(fragment='counts')]
    >>> stages.step(FragmentCommitted("counts", 4_999, has_new=True))
    [ConfirmFragment(fragment='counts')]
    >>> [type(effect).__name__ for effect in stages.step(FragmentCommitted("counts", 5_000, has_new=True))]
    ['RunNewVersion', 'ReportHandoverEnd']
    """

    def __init__(self) -> None:
        self.handover: Handover | None = None
        """The handover that is under way."""
        self._both: set[str] = set()
        self._proven: set[str] = set()
        self._reached: set[str] = set()  # fragments whose clock has reached T, or that ended or ran alone

    @property
    def both(self) -> tuple[str, ...]:
        """The fragments that run both versions, sorted."""
        return tuple(sorted(self._both))

    def step(self, event: Event) -> list[Effect]:
        """Take an event; returns its effects, in order. Raises InternalError if it is illegal."""
        effects = self._begun(event) if isinstance(event, HandoverBegun) else self._progressed(event)
        self.check()
        return effects

    def withdraw(self) -> None:
        """Another version replaces both: the handover ends."""
        self.handover = None
        self._both, self._proven, self._reached = set(), set(), set()

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        if self.handover is None:
            if self._both:
                raise InternalError(f"a handover is over while {', '.join(self.both)} run both versions")
            return
        touched = self.handover.touched
        if not self._both <= touched or not self._proven <= touched:
            raise InternalError(f"fragments that it does not touch take part in a handover: {self._both}")
        if not self._both:
            raise InternalError("a handover continues though every fragment runs the new version alone")
        if not (alone := touched - self._both) <= self._reached:
            raise InternalError(f"the old version has ended too early in one of {', '.join(sorted(alone))}")
        if not alone <= self._proven:
            raise InternalError(f"one of {', '.join(sorted(alone))} runs alone, and has proven nothing")

    # -- transitions -----------------------------------------------------------------------------------

    def _begun(self, event: HandoverBegun) -> list[Effect]:
        if self.handover is not None:
            raise InternalError(f"a handover begins during that to version {self.handover.number}")
        handover, alone = event.handover, event.alone & event.handover.touched
        self.handover, self._both = handover, set(handover.touched - alone)
        self._proven, self._reached = set(alone), set(alone)
        effects: list[Effect] = [RunBothVersions(id) for id in self.both]
        effects += [effect for id in sorted(alone) for effect in (ConfirmFragment(id), RunNewVersion(id))]
        return [*effects, *self._over()]

    def _progressed(self, event: FragmentCommitted | FragmentInputEnded) -> list[Effect]:
        handover, id = self.handover, event.fragment
        if handover is None or id not in handover.touched:
            raise InternalError(f"{id} takes no part in a handover")
        if id not in self._both:
            return []  # it runs alone already
        effects: list[Effect] = []
        match event:
            case FragmentInputEnded():
                has_reached = has_shown = True
            case FragmentCommitted(_, clock_ms, has_new):
                has_reached = clock_ms is not None and clock_ms >= handover.at_ms
                has_shown = has_new or has_reached
        if has_shown and id not in self._proven:
            self._proven.add(id)
            effects.append(ConfirmFragment(id))
        if has_reached:
            self._reached.add(id)
            self._both.discard(id)
            effects += [RunNewVersion(id)] if isinstance(event, FragmentCommitted) else []
        return [*effects, *self._over()]

    def _over(self) -> list[Effect]:
        handover = self.handover
        if handover is None or self._both:
            return []
        self.withdraw()
        return [ReportHandoverEnd(handover)]
