"""Named points of a batch, a checkpoint and the end of a run, at which tests kill the process.

Problem: an effect that happens twice, or never, when a process dies between two effects is found by dying
exactly there, not by killing processes at random moments.

Design: production code calls `maybe_crash(point)` between two durable effects. It does nothing unless a test
has armed the points: in this process with a handler that raises (`armed`), or in a process that it starts, by
an environment variable: `DRIVETRAIN_CRASH_AT="after-entry:3"` kills that process with SIGKILL when it reaches
the point for the third time.

Invariants:

1. Without a test, `maybe_crash` does nothing and cannot fail.
2. A process whose variable does not name a point and a count does not start: a test that kills no process
   proves nothing.

Called by the engine; armed by tests only.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, TypeAlias

VARIABLE: Final = "DRIVETRAIN_CRASH_AT"


class CrashPoint(StrEnum):
    """The points between two effects at which a process may die."""

    BATCH_BEGINS = "batch-begins"
    VERSION_NOTED = "version-noted"
    """The version that a batch runs with is recorded; the batch has produced no output yet."""
    BEFORE_SINK = "before-sink"
    AFTER_SINK = "after-sink"
    BEFORE_ENTRY = "before-entry"
    AFTER_ENTRY = "after-entry"
    BEFORE_COMMIT = "before-commit"
    """A batch has run; Spark has not committed it yet."""
    IN_TRANSACTION = "in-transaction"
    """A batch has been sent to Kafka, or is in files of a table; its transaction is still open."""
    AFTER_TRANSACTION = "after-transaction"
    """The transaction is committed; the state does not record this yet."""
    BEFORE_SNAPSHOT = "before-snapshot"
    AFTER_SNAPSHOT = "after-snapshot"
    BEFORE_RECORD = "before-record"
    """The transaction of a checkpoint is in a new phase; its file does not record this yet."""
    AFTER_RECORD = "after-record"
    BEFORE_PUBLICATION = "before-publication"
    AFTER_PUBLICATION = "after-publication"
    BEFORE_FINISH = "before-finish"
    """A fragment has read all its input; its channels do not record this yet."""
    AFTER_FINISH = "after-finish"
    BEFORE_VERSION = "before-version"
    """A change is compiled and checked; its version is not in force yet."""
    AFTER_VERSION = "after-version"
    HANDOVER_PAUSED = "handover-paused"
    """The fragments that a version at an event time changes are to pause; it is not recorded yet."""
    HANDOVER_RECORDED = "handover-recorded"
    """That version is recorded; the pause is not removed yet."""
    BEFORE_OUTCOME = "before-outcome"
    """A change has ended, or is to be rolled back; this is not recorded yet."""
    AFTER_OUTCOME = "after-outcome"
    HISTORY_WANTED = "history-wanted"
    """Fragments of a cluster are to read messages from before a change; none has begun yet."""
    HISTORY_PART = "history-part"
    """Some messages from before a change are written, for a channel that is made aside."""
    HISTORY_PLACED = "history-placed"
    """A channel with such messages is in its place; the version that has it is not recorded yet."""
    CHANNEL_BEGINS = "channel-begins"
    """The beginning of a new channel is recorded; the channel has no entry yet."""
    ENTRY_DROPPED = "entry-dropped"
    """An entry that another application was too slow for has lost its messages; they are not counted yet."""
    SUBSCRIPTION_ASKED = "subscription-asked"
    """A reader has asked an application in a cluster for a stream; it has no answer yet."""
    SUBSCRIPTION_NOTED = "subscription-noted"
    """The reader has noted its subscription; its request is still there."""
    CHANNEL_ENDS = "channel-ends"
    """The channels of a fragment that leaves have ended; it has not read this yet."""
    BEFORE_DIVISION = "before-division"
    """A copy of a checkpoint is made, in which the state is to be divided again."""
    AFTER_DIVISION = "after-division"
    """The state is divided, and the copy is going to be the checkpoint; it is not yet."""
    STATE_EMPTIED = "state-emptied"
    """A checkpoint with an empty state is going to be that of a fragment; it is not yet."""
    STATE_RESTORED = "state-restored"
    """Likewise, with the state that a version has dropped which was rolled back."""
    SAVEPOINT_UPLOADED = "savepoint-uploaded"
    """The files of a savepoint are in an object store; nothing names them yet."""
    COPY_UPLOADED = "copy-uploaded"
    """Likewise of a checkpoint that is copied there before its results are published."""
    COPY_NAMED = "copy-named"
    """The copy counts; on this machine the checkpoint is not decided yet."""
    FRAGMENT_LEAVES = "fragment-leaves"
    """A fragment is recorded as ready for deletion; nothing of it is deleted yet."""


Handler: TypeAlias = Callable[[CrashPoint], None]

_handler: Handler | None = None


def maybe_crash(point: CrashPoint) -> None:
    """Report that this point has been reached: nothing happens unless a test has armed it."""
    if _handler is not None:
        _handler(point)


@contextmanager
def armed(handler: Handler) -> Iterator[None]:
    """Have `handler` called at every point, in any thread that reaches it; it may raise."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before


def killer(text: str) -> Handler:
    """The handler for a text such as "after-entry:3"; raises ValueError for an invalid one."""
    name, _, count = text.partition(":")
    wanted, left, lock = CrashPoint(name), int(count), threading.Lock()

    def kill(point: CrashPoint) -> None:
        nonlocal left
        if point is wanted:
            with lock:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    return kill


if VARIABLE in os.environ:
    _handler = killer(os.environ.pop(VARIABLE))  # of this process, not of those that it starts
