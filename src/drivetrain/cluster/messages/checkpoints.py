"""Checkpoints of an application: executors and application master, and clients that want a savepoint."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.cluster.messages.numbers import Count, DurationMs
from drivetrain.core.checkpoint.transaction import (
    ActionAcked,
    ActionFailed,
    BatchesRan,
    Command,
    ParticipantEvent,
    StateLost,
)


class CheckpointCommand(Message, frozen=True, tag="cluster.checkpoint-command"):
    """A command for a fragment, by one of its inputs: from an executor that does not run the fragment to the
    application master, and from there to the executor that does.

    It may be lost: the coordinator repeats it.
    """

    epoch: Count
    fragment: str
    input: str
    command: Command


class CheckpointAnswered(Message, frozen=True, tag="cluster.checkpoint-answered"):
    """From a fragment to the coordinator: one of `acked`, `failed`, `lost`, or that it `has_run` batches.

    It may be lost.
    """

    epoch: Count
    fragment: str
    acked: ActionAcked | None = None
    failed: ActionFailed | None = None
    lost: StateLost | None = None
    has_run: bool = False


def checkpoint_answer(epoch: int, event: ParticipantEvent) -> CheckpointAnswered:
    """The message with which a fragment's event reaches the coordinator."""
    match event:
        case ActionAcked(fragment):
            return CheckpointAnswered(epoch, fragment, acked=event)
        case ActionFailed(fragment):
            return CheckpointAnswered(epoch, fragment, failed=event)
        case StateLost(fragment):
            return CheckpointAnswered(epoch, fragment, lost=event)
        case BatchesRan(fragment):
            return CheckpointAnswered(epoch, fragment, has_run=True)


class FragmentMoved(Message, frozen=True, tag="cluster.fragment-moved"):
    """A fragment runs elsewhere now, so its attempts here leave checkpoints. Sent to executors."""

    epoch: Count
    fragment: str


class MakeSavepoint(Message, frozen=True, tag="cluster.make-savepoint"):
    """Make a checkpoint within `timeout_ms` and copy it to the directory `place`, on the file system of the
    application's state. Asked of an application master; answered with `SavepointMade`."""

    place: str
    timeout_ms: DurationMs


class SavepointMade(Message, frozen=True, tag="cluster.savepoint-made"):
    """The savepoint is complete, or failed with `error`."""

    error: ErrorView | None = None
