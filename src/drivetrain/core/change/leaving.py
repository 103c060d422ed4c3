"""How fragments leave a running application: the stages of each, and their order.

Problem: a version in force lacks a fragment that runs. The messages that the fragment has read, and those in
its channels, have to be processed, its windows have to fire, and then the fragment, its channels and its
state have to be deleted. The process may be killed between any two of these steps, and a channel must not be
ended, or deleted, while its producer may still write to it.

Design: a fragment keeps running until its producers have switched to a version without it. Then its channels
end: it reads them to the end and finishes, as at the end of a bounded input, which fires its windows. Once it
has finished, a durable step marks it for deletion, and another one records that it is gone. A discarded
fragment is stopped and deleted instead.

| stage | event | effects | next stage |
|---|---|---|---|
| held | `went_over`, drains | `EndChannels` | draining |
| held | `went_over`, is discarded | `RecordFinished`, `DeleteFragment` | gone |
| draining | `finished` | `RecordFinished`, `DeleteFragment` | gone |

A fragment that an earlier process marked for deletion is deleted before anything runs.

Invariants, checked by `check`:

1. Channels end, and are deleted, only after their producers have switched.
2. State is deleted only after the fragment is marked for deletion.
3. A fragment is deleted only after those that leave with it and write what it reads.

Called by `spark.run.fragment_changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from drivetrain.errors import InternalError


class LeavingStage(StrEnum):
    """The stage of a fragment that leaves."""

    HELD = "held"
    DRAINING = "draining"


@dataclass(frozen=True)
class EndChannels:
    """Append the end to the channels that a fragment reads."""

    fragment: str


@dataclass(frozen=True)
class RecordFinished:
    """Stop the fragment's query, and durably mark the fragment for deletion."""

    fragment: str


@dataclass(frozen=True)
class DeleteFragment:
    """Delete the fragment's state and the channels that it reads, then record durably that it is gone."""

    fragment: str


LeavingEffect: TypeAlias = EndChannels | RecordFinished | DeleteFragment


@dataclass
class _Leaving:
    upstreams: frozenset[str]
    drains: bool
    stage: LeavingStage = LeavingStage.HELD


class Leaving:
    """The fragments of one application that leave it.

    >>> leaving = Leaving()
    >>> leaving.add("hourly", frozenset(), drains=True)
    >>> leaving.went_over("hourly")
    [EndChannels(fragment='hourly')]
    >>> leaving.finished("hourly")
    [RecordFinished(fragment='hourly'), DeleteFragment(fragment='hourly')]
    """

    def __init__(self) -> None:
        self._fragments: dict[str, _Leaving] = {}

    @property
    def stages(self) -> Mapping[str, LeavingStage]:
        """The stage of each fragment that has not left yet, those that write before those that read."""
        return {id: leaving.stage for id, leaving in self._fragments.items()}

    def drains(self, fragment: str) -> bool:
        """Whether a fragment that leaves processes the rest of its input."""
        return self._of(fragment).drains

    def add(self, fragment: str, upstreams: frozenset[str], *, drains: bool) -> None:
        """A fragment leaves; `upstreams` write what it reads. Raises InternalError if it leaves already."""
        if fragment in self._fragments:
            raise InternalError(f"fragment {fragment} leaves twice")
        self._fragments[fragment] = _Leaving(upstreams, drains)

    def went_over(self, fragment: str) -> list[LeavingEffect]:
        """The producers of a fragment have stopped writing to it; [] while others have to leave first."""
        leaving = self._of(fragment)
        if leaving.stage is not LeavingStage.HELD:
            raise InternalError(f"fragment {fragment} is {leaving.stage} already")
        if leaving.upstreams & self._fragments.keys():
            return []
        if not leaving.drains:
            return self._leave(fragment)
        leaving.stage = LeavingStage.DRAINING
        return [EndChannels(fragment)]

    def finished(self, fragment: str) -> list[LeavingEffect]:
        """A draining fragment has processed all its input."""
        if self._of(fragment).stage is not LeavingStage.DRAINING:
            raise InternalError(f"fragment {fragment} has finished before its channels have ended")
        return self._leave(fragment)

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        for id, leaving in self._fragments.items():
            before = leaving.upstreams & self._fragments.keys()
            if leaving.stage is not LeavingStage.HELD and (before or not leaving.drains):
                raise InternalError(f"fragment {id} is {leaving.stage} before {', '.join(sorted(before))}")

    def _leave(self, fragment: str) -> list[LeavingEffect]:
        del self._fragments[fragment]
        return [RecordFinished(fragment), DeleteFragment(fragment)]

    def _of(self, fragment: str) -> _Leaving:
        if fragment not in self._fragments:
            raise InternalError(f"fragment {fragment} does not leave")
        return self._fragments[fragment]
