"""Whether another application still keeps a stream for this one, and with which columns.

Problem: the other application may start over, be replayed, or end the subscription, whether or not this one
runs. Its channel is then gone, or has been replaced, and this application must not wait for it for ever.

Design: the other application's version in force lists its subscriptions. Their keys are never used again, so
one file answers, and the other application need not run.

Called by `spark.run.subscribing` before an application continues, and by `spark.prepare.outside_stream` while
it runs; for the columns also by `outside_producer` and `spark.run.subscribers`.
"""

from __future__ import annotations

from pathlib import Path

from drivetrain.errors import UserError
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.run_notes import known_in
from drivetrain.runtime.subscription_note import SubscriptionNote


class StartedOverError(UserError):
    """The other application has started over, or has ended the subscription."""

    code = "subscription-over"


def require_in_force(note: SubscriptionNote, id: str) -> None:
    """Raise StartedOverError when the other application does not keep its stream for this source any more."""
    producer = producer_of(note)
    in_force = producer.versions.last_readable()
    known = () if in_force is None else in_force.subscriptions
    if any((record.id, record.key) == (note.id, note.key) for record in known):
        if producer.channel(_name(note)) == note.channel:
            return
        got = "it was replayed from a timestamp, and its results are new ones"
    elif in_force is None:
        got = "it has no state"
    else:
        got = "it has started over, or has ended the subscription"
    raise StartedOverError(
        f"application {note.app_id} does not keep its stream {note.stream} for this application any more",
        where=id,
        expected="the subscription with which this application has begun",
        got=got,
        remedy="start this application over with --fresh: it subscribes again",
    )


def _name(note: SubscriptionNote) -> str:
    return note.channel.rpartition("/")[2]


def producer_of(note: SubscriptionNote) -> RunDirectory:
    """The state directory of the other application. Raises InputError when it is damaged."""
    home = Path(note.home)
    known = known_in(home)
    name, settings = str(known.get("application", "")), dict(known.get("settings", {}))
    return RunDirectory(str(home.parent), name or home.name.rpartition("-")[0], settings, note.writers)


def columns_file(channel: str) -> DurableFile:
    """The file with the columns of a stream, as Spark's JSON, beside the channel at the place `channel`."""
    return DurableFile(
        Path(channel) / "schema",
        "the columns of a stream that another application reads",
        if_damaged="delete it, and see to it that the columns have not changed",
        if_full="make room, and run the same command again: it continues where it stopped",
    )
