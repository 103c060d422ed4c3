"""Requests for the versions of an application's graph.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from drivetrain.cluster.client.version_requests import over
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.console.answers.versions import (
    ProcessorDifference,
    Version,
    VersionDifference,
    VersionGraph,
    VersionProcessor,
    Versions,
)
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.handlers.changes import roll_back_run
from drivetrain.console.handlers.cluster_changes import TRIAL
from drivetrain.console.handlers.writes import begun
from drivetrain.console.problems import RequestError
from drivetrain.console.route import Call, Reply
from drivetrain.core.change.change_state import require_done
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.version_comparison import compare_versions
from drivetrain.core.picture.compared_graph import compared_graph
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.runtime.version_history import VersionSummary, known_versions


async def versions(call: Call) -> Versions:
    """The versions that are kept, the newest first."""
    view, kept = await _kept(call)
    async with call.services.readers:
        known = await asyncio.to_thread(_known, kept, not view.state.is_over)
    return Versions(versions=tuple(map(_version, reversed(known))))


async def graph(call: Call) -> VersionGraph:
    """The graph of one version."""
    _, kept = await _kept(call)
    async with call.services.readers:
        found = await asyncio.to_thread(_found, kept, call.path["number"])
    processors = tuple(
        VersionProcessor(
            processor=id,
            text=each.shown,
            inputs=each.inputs,
            fragment=found.fragment_of(id),
            line=each.line,
        )
        for id, each in found.processors.items()
    )
    return VersionGraph(number=found.number, processors=processors)


class DifferenceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Against which version one is compared."""

    against: Annotated[int, Meta(ge=1, description="The number of the other version, usually an older one.")]


async def difference(call: Call) -> VersionDifference:
    """What differs between two versions, whichever they are."""
    query = call.query
    assert isinstance(query, DifferenceQuery)
    _, kept = await _kept(call)
    async with call.services.readers:
        return await asyncio.to_thread(_difference, kept, str(query.against), call.path["number"])


def _difference(kept: GraphVersions, against: str, number: str) -> VersionDifference:
    of = compare_versions(_found(kept, against), _found(kept, number))
    return VersionDifference(
        number=of.new.number,
        against=of.old.number,
        processors=tuple(
            ProcessorDifference(
                processor=each.id,
                mark=each.mark.value,
                why=each.why,
                before=None if each.before is None else each.before.shown,
                after=None if each.after is None else each.after.shown,
                fragment_before=each.fragment_before,
                fragment_after=each.fragment_after,
                line=each.line,
            )
            for each in of.processors
        ),
        graph=compared_graph(of.old, of.new, of.marks),
    )


async def roll_back(call: Call) -> Reply:
    """Go back to a version; the operation has succeeded once the trial of the change is over.

    When the newest version is on trial, and this is the one before it, the change is cancelled.
    """
    client = call.services.client
    call.services.operations.require_room()
    view, kept = await _kept(call)
    async with call.services.readers:
        found = await asyncio.to_thread(_found, kept, call.path["number"])
    if isinstance(client, EmbeddedRuns):
        return await roll_back_run(call, client, view, found.number)
    if view.state.is_over:
        raise over(view)

    async def doing() -> Mapping[str, str]:
        state = await client.change_state(view.app_id)
        if state.stage is Stage.ON_TRIAL and state.before == found.number:
            await client.give_up_change(view.app_id, state.number)
            await client.wait_change(view.app_id, state.number, TRIAL)
            return {"version": str(found.number)}
        begun_state = await client.roll_back(view.app_id, found.number)
        ended = await client.wait_change(view.app_id, begun_state.number, TRIAL)
        return {"version": str(require_done(ended))}

    return begun(call, "rollback", view, doing())


async def _kept(call: Call) -> tuple[ApplicationView, GraphVersions]:
    view = await call.services.client.application(call.path["app"])
    return view, (await call.services.state_of(view)).versions


def _known(kept: GraphVersions, is_running: bool) -> list[VersionSummary]:
    in_force = kept.in_force()
    return known_versions(kept, 0 if in_force is None else in_force.number, is_running=lambda: is_running)


def _found(kept: GraphVersions, written: str) -> GraphVersion:
    numbers = kept.numbers()
    if written not in map(str, numbers):
        raise RequestError(
            "the application has no such version",
            code="not-found",
            where=written[:100],
            expected=f"a number from {numbers[0]} to {numbers[-1]}"
            if numbers
            else "an application that has run",
        )
    return kept.version(int(written))


def _version(known: VersionSummary) -> Version:
    record, ending = known.record, known.ending
    changes = () if known.difference is None else known.difference.changes
    return Version(
        number=record.number,
        made_at_ms=record.made_at_ms,
        made_by=record.made_by,
        made_how=record.made_how,
        follows=record.follows or None,
        is_in_force=known.is_in_force,
        trial=None if known.trial is None else known.trial.value,
        outcome=None if ending is None else ending.outcome.value,
        in_words=known.outcome,
        ended_at_ms=None if ending is None else ending.at_ms,
        failed_fragment=None if ending is None else ending.fragment,
        why=None if ending is None else ending.why,
        processors=len(record.processors),
        changes={change.id: change.fate.value for change in changes if change.fate != "kept"},
    )
