"""`drivetrain apps`: the applications of a cluster, newest first.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption
from drivetrain.cli.cluster_access import ConsoleOption, MastersOption, connected
from drivetrain.cli.json_output import print_json
from drivetrain.config.references import shown
from drivetrain.core.figures import show_clock
from drivetrain.terminal import Console, Table, Text

if TYPE_CHECKING:
    from drivetrain.cluster.messages.applications import ApplicationSummary, ApplicationView, WorkerView

STATE_STYLES: Final = {
    "pending": "yellow",
    "active": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "killed": "bold yellow",
}

_MOST_CHARACTERS: Final = 60


def apps_command(
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the applications of a cluster: name, id, state, start, clock, and the workers they run on."""
    with connected(sets, config_file, masters, console) as client:
        applications = client.applications()
        workers = client.workers()
    if as_json:
        print_json({"applications": [line_as_data(view, workers) for view in applications]}, sys.stdout)
        return
    show_applications(applications, workers, Console())


def show_applications(
    applications: Sequence[ApplicationSummary], workers: Sequence[WorkerView], console: Console
) -> None:
    """Print one row per application, and below the reasons of those that failed or wait."""
    if not applications:
        console.print("no applications; `drivetrain submit FILE` starts one")
        return
    table = Table()
    table.add_names("name", "id")
    for heading in ("state", "since (UTC)", "clock (UTC)"):
        table.add_column(heading, no_wrap=True)
    table.add_column("workers", overflow="fold", min_width=len("workers"))
    for view in applications:
        state = Text(view.state.value, STATE_STYLES[view.state.value])
        if view.why and not view.state.is_over:
            state.append(f"\n{first_line(view.why)}", "dim")
        table.add_row(
            view.name,
            view.app_id,
            state,
            show_clock(since_ms(view)),
            show_clock(view.clock_ms),
            ", ".join(workers_of(view, workers)) or "–",
        )
    console.print(table)


def since_ms(view: ApplicationSummary | ApplicationView) -> int:
    """The time of its end, else of its submission; ms since the epoch."""
    return view.submitted_ms if view.ended_ms is None else view.ended_ms


def first_line(text: str) -> str:
    """The first line, shortened for the table; the end of a log may follow it in `text`."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def workers_of(view: ApplicationSummary | ApplicationView, workers: Sequence[WorkerView]) -> list[str]:
    """The names of the workers with processes of the application; its application master's comes first."""
    from drivetrain.cluster.client import runs_on

    names = [view.worker] if view.worker else []
    for worker in workers:
        if worker.worker_id == view.worker:
            names[0] = worker.name
    for worker in workers:
        if worker.name not in names and runs_on(worker, view.app_id):
            names.append(worker.name)
    return [] if view.state.is_over else names


def line_as_data(view: ApplicationSummary, workers: Sequence[WorkerView]) -> dict[str, object]:
    """An application in a list for `--json`; times in ms since the epoch."""
    return {
        "name": view.name,
        "id": view.app_id,
        "state": view.state.value,
        "why": view.why,
        "epoch": view.epoch,
        "priority": view.priority.value,
        "submitted_ms": view.submitted_ms,
        "ended_ms": view.ended_ms,
        "clock_ms": view.clock_ms,
        "graph_version": view.graph_version,
        "file": view.file,
        "code": view.code,
        "workers": workers_of(view, workers),
    }


def view_as_data(view: ApplicationView, workers: Sequence[WorkerView]) -> dict[str, object]:
    """An application for `--json`, with everything in the registry; times in ms since the epoch."""
    return {
        "name": view.spec.name,
        "id": view.app_id,
        "state": view.state.value,
        "why": view.why,
        "epoch": view.epoch,
        "priority": view.spec.priority.value,
        "submitted_ms": view.submitted_ms,
        "ended_ms": view.ended_ms,
        "clock_ms": view.clock_ms,
        "graph_version": view.graph_version,
        "file": view.spec.file,
        "settings": {name: shown(name, value) for name, value in view.spec.settings.items()},
        "code": view.spec.code,
        "workers": workers_of(view, workers),
    }
