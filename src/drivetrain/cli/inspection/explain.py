"""`drivetrain explain`: shows why an application stands still or is late, the root cause, and a remedy.

Called by `cli.main`; `cli.inspection.show` prints the same sentences.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.cli.inspection.application_report import look_at, look_at_run, without_leader
from drivetrain.cli.json_output import as_data, print_json
from drivetrain.config import Config
from drivetrain.core.diagnosis.diagnosis import diagnose, in_short
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.core.figures import show_span
from drivetrain.errors import UnavailableError, UserError
from drivetrain.terminal import Console, Text

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def explain_command(
    app: AppArgument,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is wrong with an application, here or in a cluster, why, and what to do; exit code 1 if
    something is critical."""
    from drivetrain.runtime.find_application import directory_of

    config = load_config(config_file, with_masters(parse_sets(sets, state_dir), masters, console))
    try:
        here = None if is_of_cluster(config, state_dir) else directory_of(app, config)
    except UserError as missing:
        if state_dir is not None:
            raise
        app_id, situation, findings = _in_default_cluster(app, config, missing)
    else:
        app_id, situation, findings = _in_cluster(app, config) if here is None else _here(here)
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


Explained: TypeAlias = tuple[str, Situation, tuple[Finding, ...]]
"""The id of an application, its situation, and what is wrong with it."""


def _here(rundir: RunDirectory) -> Explained:
    """An application that runs, or ran, embedded on this machine."""
    seen = look_at_run(rundir)
    return seen.view.app_id, seen.situation, seen.findings


def _in_default_cluster(app: str, config: Config, missing: UserError) -> Explained:
    """An application that has no state here; raises `missing` if no cluster can be asked either."""
    try:
        return _in_cluster(app, config)
    except UnavailableError:
        raise missing from None


def _in_cluster(app: str, config: Config) -> Explained:
    """An application of a cluster."""
    from drivetrain.cluster.leader import NoLeaderError

    with connected_by(config) as client:
        try:
            seen = look_at(client, app)
        except NoLeaderError:
            situation = without_leader(client, app)
            findings = diagnose(situation)
            if not findings:
                raise  # a master leads meanwhile: the user may repeat the command
            return app, situation, findings
        return seen.view.app_id, seen.situation, seen.findings


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
