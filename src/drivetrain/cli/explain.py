"""`drivetrain explain`: says why an application stands or is late, because of what, and what to do.

Called by `cli.main`; `cli.show` prints the same sentences.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.as_data import as_data
from drivetrain.cli.cluster_access import AppArgument, MastersOption, connected
from drivetrain.core.diagnosis.diagnosis import diagnose, in_short
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.figures import show_span
from drivetrain.terminal import Console, Text

STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def explain_command(
    app: AppArgument,
    masters: MastersOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with an application, why, and what to do; exit code 1 if something is critical."""
    from drivetrain.cluster.client.situation import situation_of

    with connected(sets, config_file, masters) as client:
        view, status = client.status(app)
        situation = situation_of(view, status, client.workers())
    findings = diagnose(situation)
    if as_json:
        shown = [{**as_data(finding), "severity": finding.severity.name.lower()} for finding in findings]
        data = {"app_id": view.app_id, "in_short": in_short(situation, findings), "findings": shown}
        json.dump(data, sys.stdout)
        sys.stdout.write("\n")
    else:
        console = Console()
        console.print(Text.assemble((view.app_id, "bold"), f": {in_short(situation, findings)}"))
        show_findings(findings, console)
    if findings and findings[0].severity is Severity.CRITICAL:
        raise typer.Exit(1)


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print every finding with the way to its root, its figures and the remedy."""
    for finding in findings:
        console.print()
        console.print(finding_line(finding))
        for depth, step in enumerate(finding.chain):
            console.print(Text(f"  {'  ' * depth}→ {step}"))
        if finding.evidence:
            console.print(Text(f"  figures: {'; '.join(finding.evidence)}", "dim"))
        console.print(Text.assemble("  remedy: ", finding.remedy))


def finding_line(finding: Finding) -> Text:
    """A finding as one sentence: its severity, what it is about, what is wrong and since when."""
    since = "" if finding.since_ms is None else f" (for {show_span(finding.since_ms)})"
    style = STYLES[finding.severity]
    return Text.assemble(
        (f" {finding.severity.name.lower()}", style), f"  {finding.subject}: {finding.what}{since}"
    )
