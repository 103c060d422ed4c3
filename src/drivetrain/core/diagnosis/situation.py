"""The situation of an application at one moment: the input of a diagnosis.

Problem: each program that shows an application gets its figures from a different place. A diagnosis must be
the same in all of them, and must be testable without any of them.

Design: frozen records of plain values, in the user's terms. Unknown values are None.

Made by `cluster.client.cluster_situation` and `status_situation`; read by `diagnosis` and its rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drivetrain.core.job.fragment_figures import NO_FIGURES, FragmentFigures
from drivetrain.core.job.history import NO_HISTORY, History

FINISHED: Final = "finished"
"""The state of a fragment that has read all of its input."""


@dataclass(frozen=True)
class Problem:
    """An error: its stable code, its message, and its remedy."""

    code: str
    what: str
    where: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class ChannelSituation:
    """A channel between two fragments, as `core.channel.channel_progress.ChannelProgress`."""

    producer: str
    subscriber: str
    lag_rows: int = 0
    lag_ms: int | None = None
    blocked_ms: int = 0
    losses: int = 0
    replays: int = 0


@dataclass(frozen=True)
class FragmentSituation:
    """A fragment. `channels` are those that it reads.

    `is_running`: its query runs. `attempt` counts its starts from 1. `stalled_ms` is for how long its clock
    has stood (0: it moves) and `waiting_for` what it waits for; `blocked_by` is the fragment whose full
    channel it waits for.
    """

    id: str
    is_running: bool = True
    state: str = "running"
    attempt: int = 1
    batch_ms: int = 0
    rows_per_s: float = 0.0
    lag_rows: int | None = None
    stalled_ms: int = 0
    waiting_for: str | None = None
    blocked_by: str | None = None
    left_out: int = 0
    error: Problem | None = None
    channels: tuple[ChannelSituation, ...] = ()
    figures: FragmentFigures = NO_FIGURES


@dataclass(frozen=True)
class FailedCheckpoint:
    """A checkpoint that failed: how long ago (ms), because of which fragments, and why."""

    ago_ms: int
    fragments: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class CheckpointSituation:
    """The checkpoints of an application; `last_ago_ms` is None before the first one.

    `failures` are those since the last one that succeeded, oldest first. `running_ms` is the age of the one
    that is running. `interval_ms` is the time between two checkpoints (None: made only on request).
    """

    completed: int = 0
    last_ago_ms: int | None = None
    last_took_ms: int | None = None
    running_ms: int | None = None
    failures: tuple[FailedCheckpoint, ...] = ()
    interval_ms: int | None = None


@dataclass(frozen=True)
class ProcessorCounts:
    """The messages of a processor since the application began."""

    id: str
    taken: int = 0
    late: int = 0
    dead_lettered: int = 0


@dataclass(frozen=True)
class Machine:
    """A worker of the cluster: its slots, and its free memory in bytes (None: not known)."""

    name: str
    slots: int
    free_slots: int
    memory_free: int | None = None


@dataclass(frozen=True)
class Master:
    """A master whose last message to the master that reports it came `silent_ms` ago (None: never)."""

    name: str
    leads: bool = False
    silent_ms: int | None = 0


@dataclass(frozen=True)
class Situation:
    """An application at one moment.

    `is_over` and `has_failed` are about its end, if it has ended. `answers`: its application master answers.
    `waits_for` is what keeps it from processing, `why` the cluster's reason for its state. `epoch` counts its
    application masters. `lost` are messages that were gone before the sources read them.
    `disk_free` and `disk_total` are bytes of the file system with the state directory.
    """

    application: str
    is_over: bool = False
    has_failed: bool = False
    answers: bool = True
    epoch: int = 1
    waits_for: str | None = None
    why: str | None = None
    runs_for_ms: int | None = None
    error: Problem | None = None
    recovered: tuple[Problem, ...] = ()
    fragments: tuple[FragmentSituation, ...] = ()
    processors: tuple[ProcessorCounts, ...] = ()
    checkpoints: CheckpointSituation | None = None
    machines: tuple[Machine, ...] = ()
    lost: int = 0
    masters: tuple[Master, ...] = ()
    history: History = NO_HISTORY
    disk_free: int | None = None
    disk_total: int | None = None

    def fragment(self, id: str) -> FragmentSituation | None:
        """The fragment of that id."""
        return next((fragment for fragment in self.fragments if fragment.id == id), None)

    def running(self) -> Sequence[FragmentSituation]:
        """The fragments whose query runs: none that has finished, none of an application that is over."""
        return () if self.is_over else [f for f in self.fragments if f.is_running and f.state != FINISHED]

    def channels(self) -> Sequence[ChannelSituation]:
        """All channels."""
        return [channel for fragment in self.fragments for channel in fragment.channels]
