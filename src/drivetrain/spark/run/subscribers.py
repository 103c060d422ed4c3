"""Other applications subscribe to streams of one that runs here, and end their subscriptions.

Design: a subscription is a change of the graph like any other: a processor after the stream, whose messages
go into a channel. So it is compiled, recorded and on trial, and the other fragments are not affected. The
reader gets the place of the channel, and reads it without asking this process again.

What if we die here: before the version is recorded nothing has changed, and the reader asks again; after it
the next process writes the channel.

Invariants:

1. A reader that subscribes again gets the same channel; a reader that starts over gets a new one.

Called by `control_answers`, in threads of the control socket.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import StructType

from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import Made, SubscriptionRecord, subscriptions_of
from drivetrain.core.change.subscriptions import is_stream, with_subscription, without_subscriptions
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import Subscribed, SubscriptionWanted
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.planned_version import planned_version
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.run.change_proposal import AskedChange

if TYPE_CHECKING:
    from drivetrain.api.graph import Graph
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.application_versions import LoadedVersion
    from drivetrain.spark.run.live_changes import LiveChanges


class Subscribers:
    """The subscriptions of other applications to the one whose changes are `changes`."""

    def __init__(self, changes: LiveChanges) -> None:
        self._changes: Final = changes

    def subscribe(self, wanted: SubscriptionWanted) -> Subscribed:
        """The subscription of a reader, with which the running version is in force or on trial.

        Raises UserError for a stream that does not exist, and the errors of `LiveChanges.propose`.
        """
        before = self._changes.versions.in_force
        graph = before.plan.graph
        self._refuse(before, wanted)
        id = f"{wanted.reader}.{wanted.source}"
        known = next((record for record in subscriptions_of(graph) if record.id == id), None)
        if known is None or wanted.starts_over or not wanted.is_same(known):
            key = secrets.token_hex(4)
            known = SubscriptionRecord(
                id, wanted.stream, wanted.reader, wanted.source, key, wanted.drop_after_ms
            )
            self._change(before, with_subscription(graph, known), "subscribe")
        return self._subscribed(known)

    def end(self, reader: str, source: str | None) -> int:
        """End the subscriptions of a reader, or that of one of its sources; returns the version without them.

        `reader` is the id of an application, or its name. Raises UserError if there is none.
        """
        before = self._changes.versions.in_force
        found = subscriptions_of(before.plan.graph)
        ids = [
            record.id
            for record in found
            if reader in (record.reader, record.reader.rpartition("-")[0]) and source in (None, record.source)
        ]
        if not ids:
            raise UserError(
                "no such subscription",
                got=reader if source is None else f"{reader}/{source}",
                expected=", ".join(f"{r.reader}/{r.source}" for r in found) or "nobody reads from it",
            )
        return self._change(before, without_subscriptions(before.plan.graph, ids), "unsubscribe")

    def _refuse(self, before: LoadedVersion, wanted: SubscriptionWanted) -> None:
        nodes = before.plan.graph.nodes
        if not is_stream(nodes, wanted.stream):
            raise UserError(
                "the application has no such stream",
                where=f"{before.record.application}, version {before.record.number}",
                expected=", ".join(id for id in nodes if is_stream(nodes, id)),
                got=wanted.stream,
                remedy="name one of its processors that emit messages",
            )
        if before.context.transactional:
            raise UserError(
                "no other application can read from one that publishes with checkpoints",
                where=before.record.application,
                remedy='run it with --set checkpoint.mode="off", or have both use a Kafka topic or files',
            )

    def _change(self, before: LoadedVersion, graph: Graph, how: Made) -> int:
        record = planned_version(configured_plan(graph, before.context.config))
        options = ChangeOptions(even_if_read=True)
        asked = AskedChange(record, graph, code_if_possible(graph), how, before.record.number, options)
        number = self._changes.propose(asked)
        self._changes.wait_taken(number)
        return number

    def _subscribed(self, record: SubscriptionRecord) -> Subscribed:
        in_force = self._changes.versions.in_force
        channel = next(c for c in in_force.plan.subscriptions if c.consumer_fragment == record.id)
        schema: Any = in_force.context.schemas[channel.id].jsonValue()
        place = in_force.context.rundir.channel(channel.id)
        _schema_file(place).write(msgspec.json.encode(schema))
        return Subscribed(record.id, record.key, place, schema)


def require_same_columns(plan: Plan, rundir: RunDirectory, schemas: Mapping[str, StructType]) -> None:
    """Raise UserError when a stream that others read has other columns than when they subscribed."""
    for channel in plan.subscriptions:
        content = _schema_file(rundir.channel(channel.id)).read()
        if content is None:
            continue
        known, now = StructType.fromJson(msgspec.json.decode(content)), schemas[channel.id]
        if known != now:
            raise UserError(
                f"the stream {channel.producer}, which another application reads, has other columns",
                where=channel.consumer_fragment,
                expected=known.simpleString(),
                got=now.simpleString(),
                remedy="give the changed stream another name; or run it as it was, and end the subscription "
                "with drivetrain unsubscribe",
            )


def _schema_file(channel: str) -> DurableFile:
    return DurableFile(
        Path(channel) / "schema",
        "the columns of a stream that another application reads",
        if_damaged="delete it, and see to it that the columns have not changed",
        if_full="make room, and run the same command again: it continues where it stopped",
    )
