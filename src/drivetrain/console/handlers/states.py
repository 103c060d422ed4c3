"""Requests for the states of an application.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from drivetrain.console.answers.states import StateEntries, StatefulProcessors
from drivetrain.console.planning.requests import ReadStates
from drivetrain.console.route import Call
from drivetrain.runtime.run_directory import RunDirectory

LONGEST: Final = 4_000
"""Most characters of a key, and of a value, in an answer."""


class StatesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which states."""

    key: Annotated[
        Annotated[str, Meta(max_length=4_000)] | None,
        Meta(description="Only the states of this key; for several columns, a JSON list."),
    ] = None
    at: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description='As of this application time: ISO 8601 (UTC); or "checkpoint", the newest one.'),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Most states in the answer.")] = 100


async def processors(call: Call) -> StatefulProcessors:
    """The processors that have states."""
    rundir = await _state(call)
    async with call.services.readers:
        return StatefulProcessors(processors=await asyncio.to_thread(_with_states, rundir))


async def states(call: Call) -> StateEntries:
    """The states of a processor, now or as of an application time."""
    query = call.query
    assert isinstance(query, StatesQuery)
    rundir = await _state(call)
    return await call.services.states.read(
        ReadStates(
            app_id=rundir.app_id,
            state_dir=str(rundir.path.parent),
            writers=rundir.writers.value,
            processor=call.path["processor"],
            key=query.key,
            at=query.at,
            limit=query.limit,
            longest=LONGEST,
        )
    )


async def _state(call: Call) -> RunDirectory:
    view = await call.services.client.application(call.path["app"])
    return await call.services.state_of(view)


def _with_states(rundir: RunDirectory) -> tuple[str, ...]:
    return tuple(sorted(file.parent.name for file in (rundir.home / "fragments").glob("*/operator")))
