"""Requests for dead letters.

Called by `console.routes.table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from drivetrain.console.answers.dead_letters import DeadLetter, DeadLetters
from drivetrain.console.handlers.message_pages import page_of
from drivetrain.console.route import Call
from drivetrain.runtime import dead_letter_pages
from drivetrain.runtime.dead_letter_pages import LetterPage, stores_below
from drivetrain.runtime.dead_letter_store import STORED

LONGEST: Final = 4_000
"""Most characters of a message, and of an error, in an answer."""


async def dead_letters(call: Call) -> DeadLetters:
    """A page of the messages that an application could not process, the newest first."""
    _, page, following = await page_of(call, "dead-letters", dict[str, int], _read)
    return DeadLetters(
        letters=tuple(map(_letter, page.letters)), next=following, count=page.count, dropped=page.dropped
    )


def _read(
    state: Path, limit: int, before: Mapping[str, int] | None
) -> tuple[LetterPage, dict[str, int] | None]:
    page = dead_letter_pages.page_of(stores_below(state), limit, before, LONGEST)
    return page, page.before


def _letter(row: Mapping[str, Any]) -> DeadLetter:
    message, error, timestamp = row["message"] or "", row["error"] or "", row["timestamp"]
    return DeadLetter(
        fragment=row["fragment"],
        processor=row["operator"] or "",
        message=message[:LONGEST],
        error=error[-LONGEST:],
        is_cut=len(message) > LONGEST or len(error) > LONGEST,
        file=row["file"],
        line=row["line"],
        timestamp_ms=None if timestamp is None else timestamp // 1_000,
        stored_ms=row[STORED],
    )
