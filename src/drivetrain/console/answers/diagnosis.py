"""What is wrong with an application, why, and what to do: the findings of `core.diagnosis`, as data.

Called by `console.watching.status_answers`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from drivetrain.core.diagnosis.diagnosis import diagnose, in_short
from drivetrain.core.diagnosis.finding import Severity
from drivetrain.core.diagnosis.situation import Situation

SeverityName = Literal["critical", "warning", "note", "none"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about `subject`: a fragment, a channel, a processor, or the application.

    `chain` leads from the symptom to the root, `evidence` are figures, `since_ms` is for how long, if known.
    """

    rule: str
    severity: SeverityName
    subject: str
    what: str
    remedy: str
    chain: tuple[str, ...]
    evidence: tuple[str, ...]
    since_ms: int | None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The diagnosis: one sentence, the worst severity (`none` without findings), findings by severity."""

    in_short: str
    severity: SeverityName
    findings: tuple[Finding, ...]


_NAMES: dict[Severity, SeverityName] = {
    Severity.CRITICAL: "critical",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}


def diagnosis_of(situation: Situation) -> Diagnosis:
    """Diagnose a situation; the sentences are those of `drivetrain explain`."""
    findings = diagnose(situation)
    return Diagnosis(
        in_short=in_short(situation, findings),
        severity=_NAMES[findings[0].severity] if findings else "none",
        findings=tuple(
            Finding(
                rule=found.rule,
                severity=_NAMES[found.severity],
                subject=found.subject,
                what=found.what,
                remedy=found.remedy,
                chain=found.chain,
                evidence=found.evidence,
                since_ms=found.since_ms,
            )
            for found in findings
        ),
    )
