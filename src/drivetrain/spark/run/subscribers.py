"""Other applications subscribe to streams of one that runs here, and end their subscriptions.

Design: a subscription is a change of the graph like any other: a processor after the stream, whose messages
go into a channel. So it is compiled, recorded and on trial, and the other fragments are not affected. The
reader gets the place of the channel, and reads it without asking this process again.

What if we die here: before the version is recorded nothing has changed, and the reader asks again; after it
the next process writes the channel.

Invariants:

1. A reader that subscribes again gets the same channel; a reader that starts over gets a new one.

Called by `control_answers`, in threads of the control socket, and by executors (`note_columns`).
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import StructType

from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import (
    Made,
    SubscriptionRecord,
    subscription_id,
    subscriptions_of,
)
from drivetrain.core.change.subscriptions import (
    is_stream,
    no_such_stream,
    refuse_transactional,
    subscriptions_by,
    with_subscription,
    without_subscriptions,
)
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import Subscribed, SubscriptionRequest
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.subscription_check import columns_file
from drivetrain.spark.prepare.graph_code import code_if_possible
from drivetrain.spark.run.change_proposal import RequestedChange

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.application_versions import LoadedVersion
    from drivetrain.spark.run.live_changes import LiveChanges


class Subscribers:
    """The subscriptions of other applications to the one whose changes are `changes`."""

    def __init__(self, changes: LiveChanges) -> None:
        self._changes: Final = changes

    def subscribe(self, wanted: SubscriptionRequest) -> Subscribed:
        """The subscription of a reader, with which the running version is in force or on trial.

        Raises UserError for a stream that does not exist, and the errors of `LiveChanges.propose`.
        """
        before = self._changes.versions.in_force
        graph = before.plan.graph
        if not is_stream(graph.nodes, wanted.stream):
            raise no_such_stream(graph, wanted.stream)
        refuse_transactional(graph.name, transactional=before.context.transactional)
        id = subscription_id(wanted.reader, wanted.source)
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
        ids = subscriptions_by(before.plan.graph, reader, source)
        return self._change(before, without_subscriptions(before.plan.graph, ids), "unsubscribe")

    def _change(self, before: LoadedVersion, graph: Graph, how: Made) -> int:
        record = planned_version(configured_plan(graph, before.context.config))
        options = ChangeOptions(even_if_read=True)
        asked = RequestedChange(record, graph, code_if_possible(graph), how, before.record.number, options)
        number = self._changes.propose(asked)
        self._changes.wait_taken(number)
        return number

    def _subscribed(self, record: SubscriptionRecord) -> Subscribed:
        in_force = self._changes.versions.in_force
        channel = next(c for c in in_force.plan.subscriptions if c.consumer_fragment == record.id)
        place = in_force.context.rundir.channel(channel.id)
        note_columns(in_force.plan, in_force.context.rundir, in_force.context.schemas)
        schema: Any = in_force.context.schemas[channel.id].jsonValue()
        return Subscribed(record.id, record.key, place, schema)


def note_columns(
    plan: Plan, rundir: RunDirectory, schemas: Mapping[str, StructType], known: Container[str] = ()
) -> None:
    """Keep the columns of the streams that others are going to read, but for channels that are `known`, as
    far as they are known here."""
    for channel in plan.subscriptions:
        if channel.id not in known and channel.id in schemas:
            encoded = msgspec.json.encode(schemas[channel.id].jsonValue())
            columns_file(rundir.channel(channel.id)).write(encoded)


def require_same_columns(plan: Plan, rundir: RunDirectory, schemas: Mapping[str, StructType]) -> None:
    """Raise UserError when a stream that others read has other columns than when they subscribed."""
    for channel in plan.subscriptions:
        content = columns_file(rundir.channel(channel.id)).read()
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
