"""One finding of a diagnosis: what is wrong, for how long, why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How bad it is; the worst is first."""

    CRITICAL = 0
    """Nothing more is processed, or messages are gone."""
    WARNING = 1
    """Results come late, or it will become critical if nothing changes."""
    NOTE = 2
    """It may be intended."""


@dataclass(frozen=True)
class Finding:
    """A finding of the rule `rule` about `subject`: a fragment, a channel, a processor, or the application.

    `what` is one sentence. `chain` leads from the symptom to the root, a step each, the root last; it is
    empty where they are the same. `evidence` are figures, `since_ms` is for how long, where that is known.
    """

    rule: str
    severity: Severity
    subject: str
    what: str
    remedy: str
    chain: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    since_ms: int | None = None

    @property
    def guide(self) -> str:
        """The section of the guide about findings of this rule."""
        return f"docs/guide/diagnosis.md#{self.rule}"
