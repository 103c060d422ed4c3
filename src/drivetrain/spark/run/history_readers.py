"""Makes the readers of messages from before a change, and refuses a change whose messages cannot be read.

Design: each running fragment that writes a channel to a new one has one reader (`history_reader`), which is
compiled with the new version. An embedded run makes all of them, an executor those of the fragments that run
in it.

Called by `message_histories`, and by `running_versions` and `attempt_history` of executors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from drivetrain.config.catalog import run as run_keys
from drivetrain.core.change.history_pace import HistoryPace
from drivetrain.core.change.message_history import written_again
from drivetrain.core.figures import show_counted
from drivetrain.core.replay.replay import Replay, replay_of_way
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.spark.run.history_reader import HistoryReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivetrain.api.graphs.graph import Graph
    from drivetrain.runtime.former_messages import FormerMessages
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.change_proposal import Proposal
    from drivetrain.spark.run.recovery import SteppedWork


class HistoryError(UserError):
    """The messages from before a change cannot be read; nothing has changed."""

    code = "history-failed"


def with_history(
    proposal: Proposal,
    from_ms: int,
    versions: ApplicationVersions,
    engine: QueryEngine,
    former: FormerMessages,
    fragments: Collection[str] | None = None,
) -> Proposal:
    """A proposal with the readers that write the messages from `from_ms` on into `former`.

    With `fragments` only those of these running fragments. Raises HistoryError, and what Spark refuses.
    """
    loaded = proposal.loaded
    channels = written_again(versions.in_force.record, loaded.record)
    record = msgspec.structs.replace(loaded.record, history_ms=from_ms, history_of=tuple(channels))
    loaded = dataclasses.replace(loaded, record=record)
    readers = tuple(
        _reader(loaded, id, made, versions, engine, former)
        for id, made in channels.items()
        if fragments is None or id in fragments
    )
    return dataclasses.replace(proposal, loaded=loaded, histories=readers)


def _reader(
    loaded: LoadedVersion,
    id: str,
    made: Iterable[str],
    versions: ApplicationVersions,
    engine: QueryEngine,
    former: FormerMessages,
) -> HistoryReader:
    plan, config, from_ms = loaded.plan, loaded.context.config, loaded.record.history_ms
    assert from_ms is not None
    fragment = next(f for f in plan.fragments if f.id == id)
    channels = [plan.channel(channel) for channel in made]
    sources = [source for source in fragment.inputs if source in plan.graph.nodes]
    _refuse_other_tables(plan.graph, fragment.processors)
    replays = [replay_of_way(plan.graph, from_ms, sources, channel.producer) for channel in channels]
    found = {source: time for replay in replays for source, time in replay.sources.items()}
    context = dataclasses.replace(loaded.context.apart(), replay=Replay(from_ms, found))
    trunk, compiled = versions.compiled_aside(context, fragment, former.of(id))
    places = [place for time in found.values() for place in time.places]
    return HistoryReader(
        engine,
        context,
        fragment,
        trunk,
        compiled,
        channels,
        from_ms,
        former.of(id),
        HistoryPace(config[run_keys.HISTORY_SHARE], config[run_keys.BATCH_TARGET]),
        is_ordered=len(places) == len(set(places)),
    )


def _refuse_other_tables(graph: Graph, processors: tuple[str, ...]) -> None:
    for id in processors:
        for table in graph.nodes[id].inputs:
            if getattr(graph.nodes[table].operation, "refresh_ms", None) is not None:
                raise HistoryError(
                    "a table that is read again from time to time may have had other rows before",
                    where=f"{id} reads {table}",
                    remedy="leave --history out, or attach where the fragment does not read it",
                )


def failure_of(stepping: SteppedWork) -> HistoryError:
    """The error of a reader whose steps have ended, for users."""
    try:
        stepping.result()
    except Exception as error:  # noqa: BLE001 - sources and the user's code may raise anything
        known = error if isinstance(error, DrivetrainError) else None
        failed = HistoryError(
            "messages from before the change cannot be read again",
            where=None if known is None else known.where,
            got=str(error),
            remedy="nothing has changed; correct the cause, or update without --history",
        )
        failed.__cause__ = error
        return failed
    return HistoryError("reading messages again has stopped", remedy="nothing has changed; try again")


def failed_notices(reader: HistoryReader, known: Collection[str]) -> list[str]:
    """A notice for each new processor that could not process former messages; `known` are the others."""
    lost = {id: count for id, count in reader.dead.dead.items() if id not in known}
    return [
        f"{show_counted(count, 'former message')} failed in {id}, and were left out"
        for id, count in lost.items()
    ]
