"""`drivetrain plan`: shows how an application would run, without running it.

Prints the fragments, the channels between them, how every operator runs and why, and each sink's guarantee;
also as JSON and as a picture. Needs neither Java nor data.

Called by `cli.main`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from drivetrain.api import Application
from drivetrain.api.operations import How
from drivetrain.cli.arguments import (
    ConfigOption,
    FileArgument,
    JsonOption,
    SetOption,
    StateDirOption,
    load_config,
    parse_sets,
)
from drivetrain.cli.changes.changing import DropStateOption, HistoryOption
from drivetrain.cli.changes.cluster_versions import application_in_cluster, compared_in_cluster
from drivetrain.cli.changes.comparison import (
    Comparison,
    application_against,
    compare,
    names_file,
    show_comparison,
)
from drivetrain.cli.cluster_access import ConsoleOption, MastersOption, is_of_cluster, with_masters
from drivetrain.cli.json_output import print_json
from drivetrain.cli.standard_output import standard_output_reserved
from drivetrain.cli.views.picture import draw, draw_compared
from drivetrain.cli.views.picture_file import PictureOption, write_picture
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.message_history import history_given
from drivetrain.core.change.version_comparison import marks_of
from drivetrain.core.figures import show_counted
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.delivery import EXACTLY_ONCE
from drivetrain.core.plan.plan import Fragment, Plan, PlannedSink
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.sink_places import refuse_shared_places
from drivetrain.terminal import Console, Table, Text, print_line

HOW_STYLES: Final[dict[How, str]] = {
    "source": "cyan",
    "native": "green",
    "lowered": "green",
    "arrow": "yellow",
    "task": "magenta",
    "sink": "blue",
}

_LATE: Final = (
    "those whose time the clock had passed before their batch, never within max_disorder; left out by"
)

CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Let Spark check every operator: its columns, and whether Spark expressions replace its "
        "function. Needs Java.",
    ),
]


AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="APP|FILE",
        help="Show what would change instead: for an application that has run here or runs in a cluster (its "
        "name or id), or against another file. Exit code 2 if its state cannot continue.",
    ),
]


def plan_command(
    file: FileArgument,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
    picture: PictureOption = None,
    check: CheckOption = False,
    against: AgainstOption = None,
    drop_state: DropStateOption = None,
    history: HistoryOption = None,
    masters: MastersOption = None,
    console: ConsoleOption = None,
) -> None:
    """Show how an application would run: fragments, channels, operators, guarantees. Nothing is executed."""
    options = ChangeOptions(drops=tuple(drop_state or ()), history_ms=history_given(history))
    given = parse_sets(sets, state_dir)
    with standard_output_reserved() as output:
        config = load_config(config_file, with_masters(given, masters, console))
        in_cluster = against is not None and is_of_cluster(config, state_dir) and not names_file(against)
        application = _application(file, against, config, given, in_cluster=in_cluster)
        plan = _plan_of(application, config, check=check)
        compared = None
        if against is not None and in_cluster:
            compared = compared_in_cluster(against, plan, config, options)
        elif against is not None:
            compared = compare(plan, against, config, given, options)
        if picture is not None:
            write_picture(picture, draw(plan) if compared is None else _drawn(compared))
        if as_json:
            data = plan.as_dict()
            print_json(data if compared is None else {**data, "against": compared.as_dict()}, output)
    if not as_json:
        if compared is None:
            show_plan(plan, Console())
        else:
            show_comparison(compared, Console())
        if picture is not None:
            print_line(f"picture: {picture}")
    if compared is not None and compared.difference.refused:
        raise typer.Exit(2)


def _application(
    file: str, against: str | None, config: Config, given: Mapping[str, str], *, in_cluster: bool
) -> Application:
    """The application of a file; compared with one that runs, it has the settings of that one."""
    if against is None or names_file(against):
        return load_application(file, given)
    if in_cluster:
        return application_in_cluster(against, file, given, config)
    return application_against(file, against, config, given)


def _plan_of(application: Application, config: Config, *, check: bool) -> Plan:
    if check:
        from drivetrain.spark.entry_points import analysed

        plan = analysed(application, config)
    else:
        plan = refuse_shared_places(configured_plan(application.graph(), config))
    if makes_checkpoints(plan, config):
        plan = dataclasses.replace(plan, sinks=tuple(_with_checkpoints(sink) for sink in plan.sinks))
    return plan


def _drawn(compared: Comparison) -> str:
    against = compared.against.partition(",")[0]
    return draw_compared(compared.old, compared.new, marks_of(compared.difference), against)


def _with_checkpoints(sink: PlannedSink) -> PlannedSink:
    if sink.guarantee != EXACTLY_ONCE:
        return sink
    return dataclasses.replace(sink, why=f"{sink.why}; published with each checkpoint")


def show_plan(plan: Plan, console: Console) -> None:
    """Print the plan as tables."""
    console.print(
        Text.assemble(
            (plan.application, "bold"),
            f": {show_counted(len(plan.fragments), 'fragment')}, "
            f"{show_counted(len(plan.channels), 'channel')}, "
            f"{'bounded' if plan.bounded else 'unbounded'} input, {plan.guarantee}",
            "" if plan.delivery == EXACTLY_ONCE else f" (it runs {plan.delivery})",
        )
    )
    for fragment in plan.fragments:
        console.print()
        console.print(_fragment_heading(plan, fragment))
        console.print(_operators(plan, fragment))
    console.print()
    console.print(Text("why they run so", "bold"))
    console.print(_reasons(plan))
    if late := plan.with_late_messages():
        console.print()
        console.print(Text("which messages are late", "bold"))
        console.print(f"  {_LATE} {', '.join(late)}")
    if plan.sinks:
        console.print()
        console.print(Text("what the sinks guarantee", "bold"))
        table = _table("sink", "where", "guarantee", "why")
        for sink in plan.sinks:
            table.add_row(sink.id, sink.target, sink.guarantee, Text(sink.why, "dim"))
        console.print(table)


def _fragment_heading(plan: Plan, fragment: Fragment) -> Text:
    mode = ", in real-time mode" if plan.is_realtime(fragment.id) else ""
    heading = Text.assemble("fragment ", (fragment.id, "bold"), f" (one Spark query{mode})")
    if fragment.stateful is not None:
        parts = plan.state_partitions
        number = show_counted(parts, "partition") if parts else "a partition for each core"
        heading.append(f"\n  a new state has {number} (spark.shuffle-partitions)", "dim")
    if not mode and plan.latency != "micro-batch":
        for obstacle in plan.obstacles[fragment.id]:
            heading.append(f"\n  not in real-time mode: {obstacle}", "yellow")
    for channel in plan.channels:
        if channel.consumer_fragment == fragment.id:
            heading.append(
                f"\n  reads the channel {channel.id} of {channel.producer_fragment}: {channel.why}", "dim"
            )
    return heading


def _operators(plan: Plan, fragment: Fragment) -> Table:
    table = _table("processor", "", "how", "what", "line")
    for id in fragment.processors:
        operator = plan.operators[id]
        place = "state" if id == fragment.stateful else "trunk" if id in fragment.trunk else "branch"
        table.add_row(
            id,
            Text(place, "bold" if place == "state" else "dim"),
            Text(operator.how, HOW_STYLES[operator.how]),
            operator.text if operator.columns is None else f"{operator.text}\n→ {operator.columns}",
            Text(operator.where, "dim"),
        )
    return table


def _reasons(plan: Plan) -> Table:
    """A table with each reason once, as most operators of an application share a few."""
    table = _table("how", "why", "processors")
    reasons: dict[tuple[How, str], list[str]] = {}
    for operator in plan.operators.values():
        reasons.setdefault((operator.how, operator.why), []).append(operator.id)
    for (how, why), ids in reasons.items():
        table.add_row(Text(how, HOW_STYLES[how]), why, Text(", ".join(ids), "dim"))
    return table


def _table(*headings: str) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("", "how", "guarantee"))
    return table
