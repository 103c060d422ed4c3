"""`drivetrain scale`: divides the state of a fragment that runs into another number of partitions.

Called by `cli.main`. Needs no Java.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from drivetrain.cli.arguments import (
    ConfigOption,
    JsonOption,
    SetOption,
    StateDirOption,
    duration_ms,
    load_config,
    parse_sets,
)
from drivetrain.cli.changes.changing import YesOption, ask
from drivetrain.cli.changes.comparison import in_force_of
from drivetrain.cli.cluster_access import (
    AppArgument,
    ConsoleOption,
    MastersOption,
    connected_by,
    is_of_cluster,
    with_masters,
)
from drivetrain.cli.json_output import print_json
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState, require_scaled
from drivetrain.runtime.control_requests import ask_planned_scaling, ask_to_scale, asked_state, wait_scaled
from drivetrain.terminal import print_line


def scale_command(
    app: AppArgument,
    fragment: Annotated[
        str, typer.Argument(metavar="FRAGMENT", help="The fragment, or a processor in it, as plan shows it.")
    ],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How many state partitions.")],
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen, and the size of the state.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long to wait for its end; the scaling continues anyway.")
    ] = "10 min",
    masters: MastersOption = None,
    console: ConsoleOption = None,
    sets: SetOption = None,
    config_file: ConfigOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide the state of a fragment of a running application into another number of partitions, here or in a
    cluster.

    Only this fragment pauses, while its state is moved. So many cores can work on its state at once.
    """
    wait_s = duration_ms(timeout, "--timeout") / 1000
    config = load_config(config_file, with_masters(parse_sets(sets, state_dir), masters, console))
    asked = _ScaleRequest(yes or as_json, dry_run, as_json)
    if is_of_cluster(config, state_dir):
        with connected_by(config) as client:
            app_id = client.application(app).app_id
            asked.perform(
                app_id,
                lambda: client.plan_scaling(app_id, fragment, partitions),
                lambda: client.wait_scaled(
                    app_id, client.begin_scaling(app_id, fragment, partitions), timeout
                ),
            )
        return
    rundir, _ = in_force_of(app, config)

    def scaled() -> ScalingState:
        ask_to_scale(rundir, fragment, partitions)
        return wait_scaled(lambda: asked_state(rundir), wait_s)

    asked.perform(rundir.app_id, lambda: ask_planned_scaling(rundir, fragment, partitions), scaled)


@dataclass(frozen=True)
class _ScaleRequest:
    """What the user asks for."""

    is_sure: bool
    only_plans: bool
    as_json: bool

    def perform(
        self, app_id: str, plan: Callable[[], PlannedScaling], scale: Callable[[], ScalingState]
    ) -> None:
        """Show what would happen, ask, scale, and show how it went; raises `require_scaled`'s errors."""
        if self.only_plans or not self.as_json:
            self._show(app_id, "planned", plan())
        if self.only_plans:
            return
        if not self.is_sure:
            ask()
        self._show(app_id, "scaling", require_scaled(scale()))

    def _show(self, app_id: str, name: str, found: PlannedScaling | ScalingState) -> None:
        if self.as_json:
            print_json({"application": app_id, name: msgspec.to_builtins(found)}, sys.stdout)
        else:
            print_line(found.in_words)
