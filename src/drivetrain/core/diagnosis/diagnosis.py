"""What is wrong with an application: all rules over one situation, the worst first.

Called by `drivetrain explain` and `drivetrain show`.
"""

from __future__ import annotations

from drivetrain.core.diagnosis import rules
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import Situation


def diagnose(situation: Situation) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first, those of equal severity in the order of the rules.

    >>> from drivetrain.core.diagnosis.situation import Situation
    >>> diagnose(Situation("shop"))
    ()
    """
    found = [finding for rule in rules.ALL for finding in rule(situation)]
    return tuple(sorted(found, key=lambda finding: finding.severity))


def in_short(situation: Situation, findings: tuple[Finding, ...]) -> str:
    """The diagnosis in one sentence."""
    if findings and findings[0].severity is not Severity.NOTE:
        first = findings[0]
        return f"{first.subject}: {first.what}"
    if situation.is_over:
        return "it has ended"
    return "it processes, and nothing is wrong" if not findings else "it processes"
