"""Checkpoints of an application: executors and application master, and who wants a savepoint of it."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.cluster.messages.numbers import Count, DurationMs
from drivetrain.core.checkpoint.transaction import ActionAcked, ActionFailed, Command, StateLost


class CheckpointCommand(Message, frozen=True, tag="cluster.checkpoint-command"):
    """A command for a fragment, by one of its inputs: from an executor that does not run the fragment to the
    application master, and from there to the executor that does.

    It may be lost: the coordinator has it told again.
    """

    epoch: Count
    fragment: str
    input: str
    command: Command


class CheckpointAnswered(Message, frozen=True, tag="cluster.checkpoint-answered"):
    """A fragment tells the coordinator one of `acked`, `failed`, `lost`, or that it `has_run` batches.

    It may be lost.
    """

    epoch: Count
    fragment: str
    acked: ActionAcked | None = None
    failed: ActionFailed | None = None
    lost: StateLost | None = None
    has_run: bool = False


class FragmentMoved(Message, frozen=True, tag="cluster.fragment-moved"):
    """A fragment is deployed elsewhere: its part in checkpoints here is over. Told to executors."""

    epoch: Count
    fragment: str


class MakeSavepoint(Message, frozen=True, tag="cluster.make-savepoint"):
    """Make a checkpoint within `timeout_ms` and copy it to `place`, a directory where the application's state
    is. Asked of an application master; answered with `SavepointMade`."""

    place: str
    timeout_ms: DurationMs


class SavepointMade(Message, frozen=True, tag="cluster.savepoint-made"):
    """The savepoint is there, or (`error`) there is none."""

    error: ErrorView | None = None
