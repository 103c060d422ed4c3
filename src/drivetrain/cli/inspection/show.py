"""`drivetrain show`: all details of one application in a cluster.

Called by `cli.main`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from drivetrain.cli.arguments import ConfigOption, JsonOption, SetOption, load_config
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    cluster_sets,
    connected_by,
)
from drivetrain.cli.clusters.apps import STATE_STYLES, view_as_data, workers_of
from drivetrain.cli.clusters.follow_application import reattach_hint, watch
from drivetrain.cli.inspection.application_report import look_at
from drivetrain.cli.inspection.explain import finding_line, findings_as_data
from drivetrain.cli.json_output import as_data, print_json
from drivetrain.cli.views.channel_view import channels_of, show_delay
from drivetrain.cli.views.checkpoint_view import failed_checkpoint, last_checkpoint
from drivetrain.cli.views.figures_view import figures_of
from drivetrain.config import split_sets
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.references import shown
from drivetrain.core.figures import show_clock, show_count, show_counted, show_rate, show_share, show_span
from drivetrain.terminal import Console, Table, Text, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain.cluster.messages.applications import ApplicationView, WorkerView
    from drivetrain.cluster.messages.following import ErrorView, JobStatus
    from drivetrain.core.diagnosis.finding import Finding

_MOST_ERRORS: Final = 5
_MOST_FAILURES: Final = 3
_WIDE: Final = 110
"""The least width, in characters, for the fragments' delays and executors."""


def show_command(
    app: AppArgument,
    watching: Annotated[
        bool,
        typer.Option(
            "--watch", help="Show progress until the application has ended; Ctrl-C ends only the command."
        ),
    ] = False,
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an application: fragments with states, attempts, clocks and rates, executors, errors, outputs."""
    given = cluster_sets(sets, masters, console)
    split_sets(given, ())
    config = load_config(config_file, given)
    with connected_by(config) as client:
        if watching:
            app = client.application(app).app_id
            end, code = watch(client, app, config[run_keys.PROGRESS_INTERVAL])
            if end is None:
                print_line(reattach_hint(app), file=sys.stderr)
                raise typer.Exit(code)
        seen = look_at(client, app)
    if as_json:
        data = {
            **view_as_data(seen.view, seen.workers),
            "status": None if seen.status is None else status_as_data(seen.status),
            "findings": findings_as_data(seen.findings),
        }
        print_json(data, sys.stdout)
        return
    show_application(seen.view, seen.status, seen.workers, Console(), seen.findings)


def show_application(
    view: ApplicationView,
    status: JobStatus | None,
    workers: Sequence[WorkerView],
    console: Console,
    findings: Sequence[Finding],
) -> None:
    """Print the registry's record, the application master's status if there is one, and the findings."""
    console.print(
        Text.assemble((view.app_id, "bold"), " ", (view.state.value, STATE_STYLES[view.state.value]))
    )
    console.print(_facts(view, status, workers))
    for finding in findings:
        console.print(finding_line(finding))
    if status is None:
        if not view.state.is_over:
            console.print(Text("no application master answers right now; try again in a moment", "yellow"))
        return
    if status.fragments:
        _show_fragments(status, console)
    if status.executors and not view.state.is_over:
        console.print(_executors(status))
    if status.counts:
        console.print(_processors(status))
    if status.outputs:
        console.print(_outputs(status))
    if status.accumulators:
        console.print(_accumulators(status))
    _show_errors(status, console)
    if status.printed:
        print_line(status.printed.rstrip(), console.file)


def status_as_data(status: JobStatus) -> dict[str, Any]:
    """A status for `--json`, all fields by their names; errors with `code`, `what`, `where` and so on."""
    data: dict[str, Any] = as_data(status)
    return data


def _facts(view: ApplicationView, status: JobStatus | None, workers: Sequence[WorkerView]) -> Table:
    table = Table.of_facts()
    spec = view.spec
    target = f"{spec.file}:{spec.target}" if spec.target else spec.file
    table.add_row("  name", spec.name)
    table.add_row("  file", Text.assemble(target, (f"  (code {spec.code[:12]})", "dim")))
    if spec.settings:
        table.add_row("  settings", ", ".join(f"{k}={shown(k, v)}" for k, v in sorted(spec.settings.items())))
    table.add_row("  submitted", f"{show_clock(view.submitted_ms)} UTC")
    if view.ended_ms is not None:
        table.add_row("  ended", f"{show_clock(view.ended_ms)} UTC")
    clock_ms = view.clock_ms if status is None or status.clock_ms is None else status.clock_ms
    table.add_row("  clock", show_clock(clock_ms))
    table.add_row("  application master", _app_master(view, workers))
    if view.why:
        table.add_row("  why", view.why)
    if status is not None:
        table.add_row("  job", _job(status))
    if status is not None and status.change is not None:
        table.add_row("  change", status.change)
    replay_ms = spec.replay_from_ms
    if replay_ms is not None:
        table.add_row("  replay", f"to begin from {show_clock(replay_ms)} UTC")
    elif status is not None and status.replay_from_ms is not None:
        table.add_row(
            "  replay", f"life {status.life}, replaying from {show_clock(status.replay_from_ms)} UTC"
        )
        table.add_row("  skipped", show_counted(status.skipped, "older message"))
    if status is not None and status.checkpoints is not None:
        figures = status.checkpoints
        table.add_row("  checkpoint", last_checkpoint(figures, status.checkpoints_now_ms))
        if figures.last is not None:
            prepared = sorted(figures.last.fragment_ms.items(), key=lambda entry: -entry[1])
            table.add_row("", Text(", ".join(f"{id} {show_span(ms)}" for id, ms in prepared), "dim"))
        for failure in figures.failures[-_MOST_FAILURES:]:
            table.add_row("", Text(failed_checkpoint(failure), "yellow"))
    if status is not None and status.lost:
        table.add_row("  lost", f"{show_counted(status.lost, 'message')} gone before the sources read them")
    return table


def _app_master(view: ApplicationView, workers: Sequence[WorkerView]) -> str:
    number = f"number {view.epoch}" if view.epoch else "none yet"
    names = workers_of(view, workers)
    return f"{number} on {names[0]}" if names and view.worker else number


def _job(status: JobStatus) -> str:
    parts = [status.state.value, f"for {show_span(max(0, status.now_ms - status.started_ms))}"]
    if status.fraction is not None:
        parts.append(f"{show_share(status.fraction)} of its input")
    if status.waiting_for:
        parts.append(f"waiting for {status.waiting_for}")
    return ", ".join(parts)


def _show_fragments(status: JobStatus, console: Console) -> None:
    console.print(_fragments(status, is_wide=console.width >= _WIDE))
    figures = figures_of(status.fragments, console.width)
    if figures is not None:
        console.print(figures)
    channels = channels_of(status.fragments, console.width)
    if channels is not None:
        console.print(channels)


def _fragments(status: JobStatus, *, is_wide: bool) -> Table:
    table = _table("fragment", plain=("state", "attempt"))
    for heading in ("messages", "messages/s", "lag", "batch"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("clock (UTC)", no_wrap=True)
    if is_wide:
        table.add_column("delay", justify="right", no_wrap=True)
        table.add_names("executor")
    for view in status.fragments:
        ran = view.batch_id >= 0
        cells = (
            view.fragment,
            view.state,
            str(view.attempt),
            show_count(view.rows_total),
            show_rate(view.rows_per_s) if ran else "–",
            show_count(view.lag_rows),
            show_span(view.batch_ms) if ran else "–",
            show_clock(view.clock_ms),
            show_delay(view),
            view.executor or "–",
        )
        table.add_row(*(cells if is_wide else cells[:-2]))
    return table


def _executors(status: JobStatus) -> Table:
    table = Table()
    table.add_names("executor")
    table.add_column("state", no_wrap=True)
    table.add_names("worker", "host")
    for heading in ("process", "slots"):
        table.add_column(heading, no_wrap=True)
    table.add_names("Spark")
    for executor in status.executors:
        table.add_row(
            executor.executor,
            executor.state,
            executor.worker or "–",
            executor.host or "–",
            "–" if executor.pid is None else str(executor.pid),
            str(executor.slots),
            executor.spark_master or "–",
        )
    return table


def _processors(status: JobStatus) -> Table:
    table = _table("processor")
    for heading in ("in", "out", "late", "dead-lettered"):
        table.add_column(heading, justify="right", no_wrap=True)
    for processor, counts in status.counts.items():
        table.add_row(processor, *map(show_count, counts))
    return table


def _outputs(status: JobStatus) -> Table:
    table = _table("output")
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    table.add_column("guarantee", no_wrap=True)
    for output in status.outputs:
        table.add_row(output.processor, show_count(output.messages), output.target, output.guarantee)
    return table


def _accumulators(status: JobStatus) -> Table:
    table = _table("accumulator")
    table.add_column("value", justify="right", no_wrap=True)
    for name, value in sorted(status.accumulators.items()):
        table.add_row(name, show_count(value) if isinstance(value, int) else f"{value:,.6g}")
    return table


def _show_errors(status: JobStatus, console: Console) -> None:
    errors = list(status.errors[-_MOST_ERRORS:])
    if status.error is not None and status.error not in errors:
        errors.append(status.error)
    if errors:
        console.print(Text(show_counted(len(errors), "error"), "bold red"))
    for error in errors:
        _show_error(error, console)


def _show_error(error: ErrorView, console: Console) -> None:
    where = f"{error.where}: " if error.where else ""
    console.print(Text(f"  {where}{error.what}", "red"), soft_wrap=True)
    for label, value in (("expected", error.expected), ("got", error.got)):
        if value is not None:
            console.print(Text(f"    {label}: {value}", "red"), soft_wrap=True)
    if error.user_traceback:
        lines = error.user_traceback.rstrip().splitlines()
        console.print(Text("\n".join(f"    {line}" for line in lines), "dim"), soft_wrap=True)
    if error.remedy is not None:
        console.print(Text(f"    remedy: {error.remedy}"), soft_wrap=True)


def _table(name: str, plain: Sequence[str] = ()) -> Table:
    table = Table()
    table.add_names(name)
    for heading in plain:
        table.add_column(heading, no_wrap=True)
    return table
