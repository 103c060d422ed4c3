"""Checkpoints of an application: executors and application master, and who wants a savepoint of it."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.core.transaction import ActionAcked, ActionFailed, Command, StateLost


class CheckpointTold(Message, frozen=True, tag="cluster.checkpoint-told"):
    """A command for a fragment, by one of its inputs: from an executor that does not run the fragment to the
    application master, and from there to the executor that does.

    It may be lost: the coordinator has it told again.
    """

    epoch: int
    fragment: str
    input: str
    command: Command


class CheckpointAnswered(Message, frozen=True, tag="cluster.checkpoint-answered"):
    """What the coordinator is to hear of a fragment: one of `acked`, `failed`, `lost`, or a report that its
    sources have seen timestamps up to `largest_ts_ms` (None: they have none). It may be lost."""

    epoch: int
    fragment: str
    acked: ActionAcked | None = None
    failed: ActionFailed | None = None
    lost: StateLost | None = None
    is_report: bool = False
    largest_ts_ms: int | None = None


class FragmentMoved(Message, frozen=True, tag="cluster.fragment-moved"):
    """A fragment is deployed elsewhere: its part in checkpoints here is over. Told to executors."""

    epoch: int
    fragment: str


class MakeSavepoint(Message, frozen=True, tag="cluster.make-savepoint"):
    """Make a checkpoint within `timeout_ms` and copy it to `place`, a directory where the application's state
    is. Asked of an application master; answered with `SavepointMade`."""

    place: str
    timeout_ms: int


class SavepointMade(Message, frozen=True, tag="cluster.savepoint-made"):
    """The savepoint is there, or (`error`) there is none."""

    error: ErrorView | None = None
