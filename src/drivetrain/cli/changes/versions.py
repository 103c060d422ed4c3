"""`drivetrain versions`: shows the graphs with which an application has run, and the change to each.

Called by `cli.main`. Needs no Spark.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from drivetrain.api.moments import moment_text
from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changes import version_difference
from drivetrain.cli.changes.changing import EmbeddedApplication
from drivetrain.cli.changes.cluster_versions import ClusterApplication, known_in_cluster
from drivetrain.cli.changes.comparison import changed_in_short, in_force_of
from drivetrain.cli.changes.history_cancellation import coming_of
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.cli.json_output import as_data, print_json
from drivetrain.cli.views.picture_file import PictureOption
from drivetrain.core.change.change_stages import in_words
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.scaling_state import CompletedScaling
from drivetrain.core.figures import show_clock
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.version_history import Trial, VersionSummary, known_versions
from drivetrain.terminal import Console, Table, print_line

BetweenOption = Annotated[
    tuple[int, int] | None,
    typer.Option(
        "--between",
        metavar="NUMBER NUMBER",
        help="Show what differs between two versions instead, the older one first.",
    ),
]


def versions_command(
    app: AppArgument,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
    between: BetweenOption = None,
    picture: PictureOption = None,
) -> None:
    """Show the versions of an application, here or in a cluster, and the outcome of each, the newest last."""
    if picture is not None and between is None:
        raise UserError(
            "--picture draws what differs between two versions", remedy="add --between NUMBER NUMBER"
        )
    given = parse_sets(sets, state_dir)
    config = load_config(config_file, with_masters(given, masters, console))
    scalings: list[CompletedScaling] = []
    coming: ChangeState | None = None
    if is_of_cluster(config, state_dir):
        with connected_by(config) as client:
            known, scalings = known_in_cluster(client, app)
            coming = coming_of(ClusterApplication(client, app))
    else:
        rundir, in_force = in_force_of(app, config)
        known = known_versions(rundir.versions, in_force.number, is_running=lambda: _runs(rundir))
        known = [_with_clock(rundir, one) for one in known]
        coming = coming_of(EmbeddedApplication(rundir)) if _runs(rundir) else None
        scalings = Scalings(rundir.path).all()
    if between is not None:
        _show_between(known, between, app, picture, as_json=as_json)
        return
    if as_json:
        data = {"versions": [one.as_data() for one in known], "scalings": msgspec.to_builtins(scalings)}
        reading = None if coming is None else {"version": coming.number, **as_data(coming.history)}
        print_json({**data, "reading_history": reading}, sys.stdout)
        return
    show_versions(known, Console())
    if coming is not None and coming.history is not None:
        print_line(coming.history.of_change(coming.number))
    for scaled in scalings:
        print_line(f"{show_clock(scaled.at_ms)} UTC by {scaled.by}: {scaled.of.in_words}")


def _show_between(
    known: Sequence[VersionSummary],
    between: tuple[int, int],
    app: str,
    picture: Path | None,
    *,
    as_json: bool,
) -> None:
    of = version_difference.compared({one.record.number: one.record for one in known}, between, app)
    if picture is not None:
        version_difference.draw(of, picture)
    if as_json:
        print_json(version_difference.as_data(of), sys.stdout)
    else:
        version_difference.show(of, picture, Console())


def show_versions(known: Sequence[VersionSummary], console: Console) -> None:
    """Print a table of versions, with notes on some of them."""
    table = Table()
    table.add_names("version", "since (UTC)", "by", "how", "processors", "changed", "outcome")
    for one in known:
        version = one.record
        table.add_row(
            str(version.number),
            show_clock(version.made_at_ms),
            version.made_by,
            version.made_how,
            str(len(version.processors)),
            "" if one.difference is None else changed_in_short(one.difference),
            one.outcome,
        )
    console.print(table)
    for one in known:
        number, ending = one.record.number, one.ending
        if ending is not None and ending.fragment is not None:
            console.print(f"version {number} failed in fragment {ending.fragment}: {ending.why}")
        if ending is not None and ending.leaving:
            console.print(f"since version {number}: {_leaving(ending.leaving)}")
        if one.handing_over is not None:
            console.print(f"version {number} {one.handing_over}")
        elif one.record.at_ms is not None:
            console.print(f"version {number} took the messages from {moment_text(one.record.at_ms)} on")
        if one.record.history_ms is not None:
            console.print(
                f"version {number} gave its new fragments the messages from "
                f"{moment_text(one.record.history_ms)} on"
            )
        if one.stages:
            console.print(f"version {number}: {in_words(one.stages)}")
        if one.is_in_force and one.trial is Trial.INTERRUPTED:
            console.print(
                f"the run ended during the trial of version {number}, which is in force; the trial continues "
                "when the application runs again with the same graph, and another graph replaces the version"
            )


def _leaving(leaving: Mapping[str, str]) -> str:
    """Which fragments have not left yet, and how they leave."""
    return ", ".join(f"fragment {id} {how}" for id, how in leaving.items())


def _with_clock(rundir: RunDirectory, one: VersionSummary) -> VersionSummary:
    """A version with the progress of its handover, if it is the one in force and the application runs."""
    if not one.is_in_force or one.record.at_ms is None:
        return one
    from drivetrain.runtime.control_requests import asked_state

    try:
        return dataclasses.replace(one, handing_over=asked_state(rundir).handing_over)
    except UnavailableError:
        return one  # it does not run


def _runs(rundir: RunDirectory) -> bool:
    """Whether a process runs the application now."""
    if not rundir.is_free():
        return True
    rundir.release()
    return False
