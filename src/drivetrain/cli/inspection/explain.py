"""`drivetrain explain`: shows why an application stands still or is late, the root cause, and a remedy.

Called by `cli.main`; `cli.inspection.show` prints the same sentences.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import AppArgument, ConsoleOption, MastersOption, connected
from drivetrain.cli.inspection.application_report import look_at, without_leader
from drivetrain.cli.json_output import as_data, print_json
from drivetrain.core.diagnosis.diagnosis import diagnose, in_short
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.figures import show_span
from drivetrain.terminal import Console, Text

STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def explain_command(
    app: AppArgument,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is wrong with an application, why, and what to do; exit code 1 if something is critical."""
    from drivetrain.cluster.leader import NoLeaderError

    with connected(sets, config_file, masters, console) as client:
        try:
            seen = look_at(client, app)
            app_id, situation, findings = seen.view.app_id, seen.situation, seen.findings
        except NoLeaderError:
            app_id, situation = app, without_leader(client, app)
            findings = diagnose(situation)
            if not findings:
                raise  # a master leads meanwhile: the user may repeat the command
    if as_json:
        data = {
            "app_id": app_id,
            "in_short": in_short(situation, findings),
            "findings": findings_as_data(findings),
        }
        print_json(data, sys.stdout)
    else:
        shown = Console()
        shown.print(Text.assemble((app_id, "bold"), f": {in_short(situation, findings)}"))
        show_findings(findings, shown)
    if findings and findings[0].severity is Severity.CRITICAL:
        raise typer.Exit(1)


def findings_as_data(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings for `--json`: every field by its name, the severity as a word, where the guide has more."""
    return [
        {**as_data(finding), "severity": finding.severity.name.lower(), "guide": finding.guide}
        for finding in findings
    ]


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print every finding with the chain to its root cause, its figures and the remedy."""
    for finding in findings:
        console.print()
        console.print(finding_line(finding))
        for depth, step in enumerate(finding.chain):
            console.print(Text(f"  {'  ' * depth}→ {step}"))
        if finding.evidence:
            console.print(Text(f"  figures: {'; '.join(finding.evidence)}", "dim"))
        console.print(Text.assemble("  remedy: ", finding.remedy))
        console.print(Text(f"  more: {finding.guide}", "dim"))


def finding_line(finding: Finding) -> Text:
    """A finding as one sentence: its severity, its subject, the problem and its beginning."""
    since = "" if finding.since_ms is None else f" (for {show_span(finding.since_ms)})"
    style = STYLES[finding.severity]
    return Text.assemble(
        (f" {finding.severity.name.lower()}", style), f"  {finding.subject}: {finding.what}{since}"
    )
