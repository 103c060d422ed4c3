"""The outcome of a check of `drivetrain doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The verdict of a check: OK, WARN (it works, but could be better), FAIL (an application cannot run)."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check: its subject, the verdict, what was found, and the remedy."""

    check: str
    verdict: Verdict
    found: str
    remedy: str | None = None
