"""Requests for late messages.

Called by `console.routes.table`.
"""

from __future__ import annotations

from pathlib import Path

from drivetrain.console.answers.late_messages import LateMessage, LateMessages
from drivetrain.console.handlers.message_pages import page_of
from drivetrain.console.route import Call
from drivetrain.runtime import late_samples
from drivetrain.runtime.late_samples import Position, newest_of, samples_below


async def late_messages(call: Call) -> LateMessages:
    """A page of samples of the messages that came too late, the newest first."""
    view, page, following = await page_of(call, "late-messages", tuple[int, str, int], _read)
    status = await call.services.client.job_status(view)
    return LateMessages(
        samples=tuple(_answered(position[1], sample) for position, sample in page),
        next=following,
        late=None if status is None else {id: late for id, (_, _, late, _) in status.counts.items() if late},
    )


def _read(
    state: Path, limit: int, before: Position | None
) -> tuple[list[tuple[Position, late_samples.LateMessage]], Position | None]:
    found = newest_of(samples_below(state), limit + 1, before)
    return found[:limit], found[limit - 1][0] if len(found) > limit else None


def _answered(fragment: str, sample: late_samples.LateMessage) -> LateMessage:
    return LateMessage(
        fragment=fragment,
        processor=sample.processor,
        message=sample.message,
        is_cut=sample.is_cut,
        timestamp_ms=sample.timestamp_ms,
        clock_ms=sample.clock_ms,
        batch=sample.batch,
        stored_ms=sample.stored_ms,
    )
