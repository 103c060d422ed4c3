"""Requests that read applications.

Called by `console.routes.table`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from drivetrain.cluster.messages import applications as messages
from drivetrain.console import cursors
from drivetrain.console.answers.applications import ApplicationPage, ApplicationSnapshot
from drivetrain.console.answers.diagnosis import Diagnosis
from drivetrain.console.answers.figures import History
from drivetrain.console.answers.progress import (
    Channels,
    CheckpointReport,
    Clocks,
    Errors,
    FragmentClock,
    Fragments,
    Job,
)
from drivetrain.console.route import Call
from drivetrain.console.watching.figure_answers import history_of
from drivetrain.console.watching.guest_snapshots import without_texts
from drivetrain.console.watching.status_answers import line_of
from drivetrain.core.job.history import SPAN_MS

_Moment = Annotated[int, Meta(ge=0, le=2**53)]
State = Literal["pending", "active", "succeeded", "failed", "killed"]


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which applications: in one of these states, with this text in their name or id; a page of them."""

    state: Annotated[tuple[State, ...], Meta(description="Only applications in one of these states.")] = ()
    search: Annotated[str, Meta(max_length=200, description="Only those with this in their id.")] = ""
    limit: Annotated[int, Meta(ge=1, le=500, description="The length of a page.")] = 100
    cursor: Annotated[
        Annotated[str, Meta(max_length=2000)] | None, Meta(description="The `next` of the page before.")
    ] = None


async def listed(call: Call) -> ApplicationPage:
    """A page of the applications, the newest first."""
    query = call.query
    assert isinstance(query, ListQuery)
    kind = f"applications {sorted(query.state)} {query.search}"
    lines = [line for line in await call.services.client.applications() if _matches(line, query)]
    if query.cursor is not None:
        after = _age(cursors.read(query.cursor, kind))
        lines = [line for line in lines if _age(line.app_id) < after]
    page = lines[: query.limit]
    shown = page if call.caller.sees_errors else map(without_texts, page)
    more = len(lines) > len(page)
    return ApplicationPage(
        applications=tuple(map(line_of, shown)),
        next=cursors.written(cursors.Cursor(kind, page[-1].app_id)) if more else None,
    )


def _matches(line: messages.ApplicationSummary, query: ListQuery) -> bool:
    return (
        not query.state or line.state.value in query.state
    ) and query.search.lower() in line.app_id.lower()


def _age(app_id: str) -> int:
    """The number at the end of an id, which grows with every application; 0 for what has none."""
    number = app_id.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 19 else 0


async def detail(call: Call) -> ApplicationSnapshot:
    """All of one application."""
    snapshots = await call.services.watch.snapshots(call.path["app"])
    return snapshots.of(sees_errors=call.caller.sees_errors)


async def diagnosis(call: Call) -> Diagnosis:
    """What is wrong with an application, why, and what to do."""
    return (await detail(call)).diagnosis


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of the history, and how many moments of it."""

    since_ms: Annotated[_Moment | None, Meta(description="From this moment on; by default 15 min.")] = None
    until_ms: Annotated[_Moment | None, Meta(description="Up to this moment; by default the newest.")] = None
    points: Annotated[int, Meta(ge=1, le=2_000, description="Most moments; neighbours are merged.")] = 1_000


async def history(call: Call) -> History:
    """The figures in a span of time."""
    query = call.query
    assert isinstance(query, HistoryQuery)
    view = await call.services.client.application(call.path["app"])
    past = call.services.recorder
    return history_of(
        view.app_id, await past.between(view, query.since_ms, query.until_ms, SPAN_MS, query.points)
    )


async def fragments(call: Call) -> Fragments:
    """The fragments."""
    job = await _job(call)
    return Fragments(fragments=() if job is None else job.fragments)


async def channels(call: Call) -> Channels:
    """The channels."""
    job = await _job(call)
    return Channels(channels=() if job is None else job.channels)


async def checkpoints(call: Call) -> CheckpointReport:
    """The checkpoints."""
    job = await _job(call)
    return CheckpointReport(checkpoints=None if job is None else job.checkpoints)


async def errors(call: Call) -> Errors:
    """The latest errors."""
    job = await _job(call)
    return Errors(error=None if job is None else job.error, errors=() if job is None else job.errors)


class ClocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to wait until the application's clock has reached a moment."""

    wait: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="Wait until the clock is there: ISO 8601 (UTC), or ms."),
    ] = None
    timeout: Annotated[str, Meta(max_length=32, description="How long to wait at most.")] = "30 s"


async def clocks(call: Call) -> Clocks:
    """The clocks; with `wait` once the application's has reached that moment, or 504."""
    query = call.query
    assert isinstance(query, ClocksQuery)
    app = call.path["app"]
    if query.wait is not None:
        moment = int(query.wait) if query.wait.removeprefix("-").isdecimal() else query.wait
        await call.services.client.wait_clock(app, moment, query.timeout)
    snapshot = await detail(call)
    job = snapshot.job
    if job is None:
        return Clocks(clock_ms=snapshot.application.clock_ms, fragments=(), channels={})
    known = [fragment.clock_ms for fragment in job.fragments if fragment.clock_ms is not None]
    lowest = min(known, default=None)
    return Clocks(
        clock_ms=job.clock_ms,
        fragments=tuple(
            FragmentClock(
                fragment=fragment.fragment,
                clock_ms=fragment.clock_ms,
                clock_delay_ms=fragment.clock_delay_ms,
                holds_minimum=fragment.clock_ms is not None and fragment.clock_ms == lowest,
                stalled_ms=fragment.stalled_ms,
                waiting_for=fragment.waiting_for,
                silent_partitions=fragment.silent_partitions,
            )
            for fragment in job.fragments
        ),
        channels={channel.channel: channel.clock_ms for channel in job.channels},
    )


async def _job(call: Call) -> Job | None:
    return (await detail(call)).job
