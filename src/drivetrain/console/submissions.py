"""Submissions by their `Idempotency-Key`: which key belongs to which application.

Problem: a client that lost the answer sends its submission again, and must not get a second application; a
client that uses a key again for another upload has made a mistake.

Design: a key belongs to its caller. The masters know a submission by an id that is made from both, so the
same key gives the same application also through another console. This module remembers a hash of the upload
of each key.

Invariants:

1. A key is accepted for one upload only.
2. At most `MOST` keys are remembered, the newest.

Called by `console.handlers.uploads`.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from drivetrain.console.access.roles import Caller
from drivetrain.console.problems import RequestError

MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was sent with a key, as a hash, and the outcome (None: none yet)."""

    fingerprint: str
    app_id: str | None = None


class Submissions:
    """What is remembered of submissions, by their ids at the masters."""

    def __init__(self) -> None:
        self._known: Final[OrderedDict[str, Submitted]] = OrderedDict()

    def begin(self, submission_id: str, fingerprint: str) -> str | None:
        """Take a submission; returns the application that it led to before. Raises RequestError."""
        known = self._known.get(submission_id)
        if known is not None and known.fingerprint != fingerprint:
            raise reused()
        if known is None:
            self._known[submission_id] = Submitted(fingerprint)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
            return None
        return known.app_id

    def accepted(self, submission_id: str, app_id: str) -> None:
        """The masters have accepted it."""
        known = self._known.get(submission_id)
        if known is not None:
            self._known[submission_id] = Submitted(known.fingerprint, app_id)

    def failed(self, submission_id: str) -> None:
        """It was refused: the key can be used for a corrected one."""
        self._known.pop(submission_id, None)


def submission_id(caller: Caller, key: str) -> str:
    """The id of a submission at the masters; each caller has keys of their own."""
    return hashlib.sha256(f"{caller.means} {caller.name} {key}".encode()).hexdigest()[:32]


def reused() -> RequestError:
    """The error for a key that was used for another submission."""
    return RequestError(
        "this Idempotency-Key was used for another submission",
        code="key-reused",
        where="Idempotency-Key",
        expected="a key of its own for each submission, and the same content when it is sent again",
        remedy="choose a new key",
    )
