"""Shortens the last status of an application to the limit of the masters' registry.

Problem. A status has a part for each fragment, and users' texts: errors with tracebacks, what hooks printed.
The registry would reject the whole status when it is too large.

Design. The least important parts are removed first, until the rest fits: printed text and earlier errors are
cut, then details of fragments and outputs are dropped, and finally everything but state, times and the error.

Called by application masters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from drivetrain.cluster.messages.following import ErrorView, JobStatus
from drivetrain.core.cluster.record_limits import cut

_PRINTED_CHARACTERS: Final = 16_000
_ERRORS: Final = 5
_SHORT_CHARACTERS: Final = 1_000


def encode_within(status: JobStatus, limit_bytes: int) -> bytes:
    """The status as msgpack, shortened until it has at most `limit_bytes`."""
    data = msgspec.msgpack.encode(status)
    for shorten in _STEPS:
        if len(data) <= limit_bytes:
            break
        status = shorten(status)
        data = msgspec.msgpack.encode(status)
    return data


def _without_much_text(status: JobStatus) -> JobStatus:
    return msgspec.structs.replace(
        status, printed=cut(status.printed, _PRINTED_CHARACTERS) or "", errors=status.errors[-_ERRORS:]
    )


def _without_details(status: JobStatus) -> JobStatus:
    fragments = tuple(
        msgspec.structs.replace(fragment, error=_short(fragment.error), channels=())
        for fragment in status.fragments
    )
    errors = tuple(short for error in status.errors if (short := _short(error)) is not None)
    return msgspec.structs.replace(
        status,
        fragments=fragments,
        errors=errors,
        error=_short(status.error),
        printed=cut(status.printed, _SHORT_CHARACTERS) or "",
        checkpoints=None,
    )


def _bare(status: JobStatus) -> JobStatus:
    return JobStatus(
        status.app_id,
        status.epoch,
        status.state,
        status.started_ms,
        status.now_ms,
        clock_ms=status.clock_ms,
        error=_short(status.error),
        life=status.life,
        replay_from_ms=status.replay_from_ms,
        skipped=status.skipped,
        lost=status.lost,
    )


def _short(error: ErrorView | None) -> ErrorView | None:
    if error is None:
        return None
    return ErrorView(
        error.code,
        cut(error.what, _SHORT_CHARACTERS) or "",
        *(
            cut(text, _SHORT_CHARACTERS)
            for text in (error.where, error.expected, error.got, error.remedy, error.user_traceback)
        ),
    )


_STEPS: Final[tuple[Callable[[JobStatus], JobStatus], ...]] = (_without_much_text, _without_details, _bare)
