"""What a check of `drivetrain doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether it will do: OK, WARN (it works, but worse than it could), FAIL (an application cannot run)."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check: what was looked at, the verdict, what was found, and what to do about it."""

    check: str
    verdict: Verdict
    found: str
    remedy: str | None = None
