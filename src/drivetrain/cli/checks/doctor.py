"""`drivetrain doctor`: shows what is missing on this machine, and how to get it.

Each check examines one thing and returns a `Finding`; none raises, and none makes a lasting change.

Called by `cli.main`. The checks are in `cli.checks.machine` (what the machine has), `cli.checks.software`
(what is installed) and `cli.checks.object_store_checks` (what an object store does).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Annotated, Final, TypeAlias

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, load_config, parse_sets
from drivetrain.cli.checks import machine, software
from drivetrain.cli.checks.finding import Finding, Verdict
from drivetrain.cli.checks.object_store_checks import check_place
from drivetrain.config import Config, split_sets
from drivetrain.config.catalog import run, spark
from drivetrain.config.catalog.checkpoint import COPY_TO
from drivetrain.errors import ConfigError
from drivetrain.runtime.state_place import is_remote, state_home
from drivetrain.terminal import Console, Table, Text, print_line

PlacesArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PLACES]...", help="Places in object stores to check, such as s3://bucket/name."),
]
_STYLES: Final = {Verdict.OK: "green", Verdict.WARN: "bold yellow", Verdict.FAIL: "bold red"}


def doctor_command(
    places: PlacesArgument = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine has everything that Drivetrain needs, and show how to install the rest.

    With PLACES, URIs of object stores or of HDFS, also check that they can be reached, read and written, and
    behave as Drivetrain requires; so are the places of the state and of copied checkpoints, if the
    configuration names them.
    """
    given = parse_sets(sets)
    split_sets(given, ())
    findings: list[Finding] = []
    try:
        config = load_config(config_file, given)
        findings.append(Finding("configuration", Verdict.OK, "every key and value is valid"))
    except ConfigError as error:
        # The other checks are still useful with the defaults.
        config = Config()
        findings.append(Finding("configuration", Verdict.FAIL, f"{error.where}: {error.what}", error.remedy))
    findings += examine(config)
    findings += [check_place(place, config) for place in dict.fromkeys([*(places or ()), *_named_by(config)])]
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    if as_json:
        print_line(json.dumps({"ok": not failed, "findings": [asdict(finding) for finding in findings]}))
    else:
        show_findings(findings, Console())
    raise typer.Exit(1 if failed else 0)


def _named_by(config: Config) -> list[str]:
    """The places in stores that a configuration names."""
    named = [config[COPY_TO]] if config[COPY_TO] != COPY_TO.default else []
    return [config[run.STATE_DIR], *named] if is_remote(config) else named


def _key_of_states(config: Config) -> str:
    return (run.WORK_DIR if is_remote(config) else run.STATE_DIR).name


def examine(config: Config) -> list[Finding]:
    """Run every check, each after those that it depends on."""
    environ = os.environ
    return [
        software.check_python(),
        *software.check_packages(),
        software.check_java(environ),
        software.check_kafka(config),
        *software.check_extras(),
        *software.check_connectors(),
        software.check_spark_home(environ),
        software.check_worker_python(environ),
        machine.check_memory(config[spark.DRIVER_MEMORY], config[spark.MASTER]),
        machine.check_state_dir(state_home(config), _key_of_states(config)),
        machine.check_temporary_dir(environ),
        machine.check_ports(),
        machine.check_hostname(environ),
        machine.check_master(config[spark.MASTER]),
    ]


def show_findings(findings: list[Finding], console: Console) -> None:
    """Print one row per finding, the remedy below what needs one, and a last line with the verdict."""
    table = Table()
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        found = Text(finding.found)
        if finding.remedy is not None:
            found.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(finding.check, Text(finding.verdict.value, _STYLES[finding.verdict]), found)
    console.print(table)
    failed = sum(finding.verdict is Verdict.FAIL for finding in findings)
    warned = sum(finding.verdict is Verdict.WARN for finding in findings)
    if failed:
        console.print(Text(f"{failed} missing, {warned} to look at: see the arrows above", "bold red"))
    else:
        console.print(Text(f"ready to run, {warned} to look at" if warned else "ready to run", "bold green"))
