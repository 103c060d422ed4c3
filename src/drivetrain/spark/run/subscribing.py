"""Has an application subscribe to the streams of others that it reads, before its queries start.

Problem: the other application may not run yet, may be in the middle of a change, may have started over, or
may have ended this application's subscription. The messages read must be exactly those with which the state
here continues.

Design: a source without a note subscribes as a reader that starts over, and writes a note about its
subscription. Until the other application runs and can change, the source waits, and reports this: an embedded
run in `subscribe`, while an executor is asked again and again what it waits for (`awaited`). A source with a
note only checks that its subscription is still there, in the other application's files; that application need
not run.

What if we die here: after the subscription and before the note, the next run starts over, with another
channel, or the same one of an application in a cluster; nothing has been read.

Invariants:

1. A state continues only with the channel that it began with.

Called by `preparing` and by executors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.types import schema_of
from drivetrain.core.change.graph_version import SubscriptionRecord
from drivetrain.core.change.live_change import Stage
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, InputError, UnavailableError, UserError
from drivetrain.runtime import outside_producer
from drivetrain.runtime.control_requests import Subscribed, SubscriptionRequest, asked_state
from drivetrain.runtime.find_application import directory_of
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_check import producer_of, require_in_force
from drivetrain.runtime.subscription_note import SubscriptionNote, forget_note, read_note, write_note

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.config import Config

_LOOK_S: Final = 0.2
_ASK_S: Final = 0.4
"""How often another application is asked again."""


@dataclass(frozen=True)
class WaitOptions:
    """How an application waits for others: `tell` gets notices, `is_given_up` is true if it must stop."""

    tell: Callable[[str], None]
    is_given_up: Callable[[], bool]


@dataclass(frozen=True)
class _GrantedSubscription:
    """A subscription that is in force, and who keeps its channel."""

    producer: RunDirectory
    subscribed: Subscribed


def outside_sources(graph: Graph) -> dict[str, ApplicationStream]:
    """The sources that are streams of other applications, by processor."""
    sources = {id: node.operation.stream_source for id, node in graph.nodes.items()}
    return {id: source for id, source in sources.items() if isinstance(source, ApplicationStream)}


def subscribe(
    graph: Graph,
    rundir: RunDirectory,
    config: Config,
    waiting: WaitOptions | None,
    *,
    only: Iterable[str] = (),
) -> list[str]:
    """Subscribe to the streams of other applications that a graph reads (`only` for these sources, if given).

    Returns notices for the user. Raises UserError when the other application has no such stream or refuses,
    StartedOverError, and UnavailableError when it does not run and this application may not wait.
    """
    notices: list[str] = []
    wanted = set(only)
    for id, source in outside_sources(graph).items():
        if wanted and id not in wanted:
            continue
        note = read_note(rundir.source(id))
        if note is None:
            note = _subscribed(id, source, rundir, config, waiting)
            notices.append(f"{id} reads {note.app_id}/{note.stream} from its next batch on")
        else:
            require_in_force(note, id)
            outside_producer.noted(producer_of(note), rundir.app_id, id)
        _require_columns(id, source, note)
    return notices


def awaited(graph: Graph, rundir: RunDirectory, config: Config, *, starts_over: bool) -> str | None:
    """What an application waits for before it can subscribe, as text after "waiting for"; None: nothing.

    To be called again and again, as other applications begin a subscription only for a reader that asks.
    `starts_over` if it forgets its notes. Raises as `subscribe`.
    """
    found = []
    for id, source in outside_sources(graph).items():
        if not starts_over and read_note(rundir.source(id)) is not None:
            continue
        given = _asked(id, source, rundir, config, in_cluster=True)
        if isinstance(given, str):
            found.append(f"application {source.application}, to read its stream {source.stream}: {given}")
    return "; ".join(found) or None


def end_subscriptions(graph: Graph, rundir: RunDirectory, ids: Iterable[str] | None = None) -> None:
    """End the subscriptions of sources, if the other applications can be reached; all of them by default."""
    for id in outside_sources(graph) if ids is None else ids:
        note = None
        with suppress(InputError):
            note = read_note(rundir.source(id))
        if note is not None:
            with suppress(DrivetrainError):  # it does not run: drivetrain unsubscribe ends it later
                of = SubscriptionRecord(note.id, note.stream, rundir.app_id, id, note.key)
                outside_producer.end(producer_of(note), of)
            forget_note(rundir.source(id))


def _subscribed(
    id: str, source: ApplicationStream, rundir: RunDirectory, config: Config, waiting: WaitOptions | None
) -> SubscriptionNote:
    reported, asked_s = "", -_ASK_S
    given: _GrantedSubscription | str = ""
    while True:
        if time.monotonic() - asked_s >= _ASK_S:
            asked_s = time.monotonic()
            given = _asked(id, source, rundir, config, in_cluster=waiting is None)
        if not isinstance(given, str):
            return _noted(id, source, rundir, given)
        if waiting is None:
            raise UnavailableError(
                f"application {source.application} cannot be asked for its stream {source.stream}",
                where=id,
                got=given,
                remedy="start it, and try again",
            )
        text = f"waits for application {source.application}, to read its stream {source.stream}: {given}"
        if text != reported:
            waiting.tell(f"{id} {text}")
            reported = text
        if waiting.is_given_up():
            _withdraw(id, source, rundir, config)
            raise UnavailableError(f"stopped while it {text}", where=id)
        time.sleep(_LOOK_S)


def _refuse_itself(id: str, producer: RunDirectory, rundir: RunDirectory) -> None:
    if producer.app_id == rundir.app_id:
        raise UserError(
            "an application cannot read a stream of its own as another application's",
            where=id,
            remedy="use the stream directly",
        )


def _asked(
    id: str, source: ApplicationStream, rundir: RunDirectory, config: Config, *, in_cluster: bool
) -> _GrantedSubscription | str:
    """Ask the other application for its stream, once more; returns why it cannot keep it yet."""
    wanted = SubscriptionRequest(rundir.app_id, id, source.stream, source.drop_after_ms, starts_over=True)
    try:
        producer = directory_of(source.application, config)
        _refuse_itself(id, producer, rundir)
        given = outside_producer.subscribed(producer, wanted, in_cluster=in_cluster)
    except UserError as error:
        if not _may_come(error, source, config):
            raise
        return str(error)
    return given if isinstance(given, str) else _GrantedSubscription(producer, given)


def _withdraw(id: str, source: ApplicationStream, rundir: RunDirectory, config: Config) -> None:
    """Nobody waits for a stream any more: the other application must not begin to keep it."""
    with suppress(DrivetrainError):
        outside_producer.noted(directory_of(source.application, config), rundir.app_id, id)


def _may_come(error: UserError, source: ApplicationStream, config: Config) -> bool:
    """Whether an application that refuses, or is not there, may be asked again."""
    try:
        producer = directory_of(source.application, config)
    except UserError as missing:
        return missing.what == error.what and "several" not in missing.what
    try:
        return asked_state(producer).stage is not Stage.IDLE
    except DrivetrainError:
        return False


def _noted(
    id: str, source: ApplicationStream, rundir: RunDirectory, given: _GrantedSubscription
) -> SubscriptionNote:
    producer, subscribed = given.producer, given.subscribed
    note = SubscriptionNote(
        producer.app_id,
        str(producer.path),
        source.stream,
        subscribed.id,
        subscribed.key,
        subscribed.channel,
        subscribed.schema,
        producer.writers,
    )
    write_note(rundir.source(id), note)
    maybe_crash(CrashPoint.SUBSCRIPTION_NOTED)
    outside_producer.noted(producer, rundir.app_id, id)
    return note


def _require_columns(id: str, source: ApplicationStream, note: SubscriptionNote) -> None:
    """Raise UserError when the stream does not have the columns that the source declares."""
    if source.schema is None:
        return
    from pyspark.sql.types import StructType

    from drivetrain.runtime.channel.columns import TS

    declared = {field.name: field.dataType for field in StructType.fromDDL(schema_of(source.schema))}
    given = {field.name: field.dataType for field in StructType.fromJson(note.schema) if field.name != TS}
    if declared != given:
        raise UserError(
            "the stream of the other application has other columns than are declared",
            where=id,
            expected=", ".join(f"{name} {kind.simpleString()}" for name, kind in declared.items()),
            got=", ".join(f"{name} {kind.simpleString()}" for name, kind in given.items()),
            remedy="correct schema=, or leave it out",
        )
