"""The parts of an application that its application master needs: vertices of the job, the plan, its state.

Loads the user's file, in a process that must stay small: this module imports neither PySpark nor pyarrow (the
user's file may, at its own cost).

Called by `__main__`, which hands `load` to the application master, and by `stream_progress` (`counts_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.job.fragment_execution import FragmentId
from drivetrain.core.job.job_events import Vertex
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.counts import CountRule, derive
from drivetrain.core.plan.plan import Plan
from drivetrain.private_files import Writers
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state_place import state_home


@dataclass(frozen=True)
class PlannedApplication:
    """The vertices in topological order; `name` and `settings` are the application's own.

    Without a `plan` no checkpoints are made, and the graph cannot change while it runs.
    """

    vertices: tuple[Vertex, ...]
    plan: Plan | None = None
    name: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)

    def rundir(self, config: Config) -> RunDirectory:
        """The state directory of the application."""
        writers = Writers(config[run_keys.WRITERS])
        return RunDirectory(state_home(config), self.name, self.settings, writers)


def counts_of(
    rules: Mapping[str, CountRule],
    out: Mapping[str, int],
    into: Mapping[str, int],
    late: Mapping[str, int],
    dead: Mapping[str, int],
) -> dict[str, tuple[int, int, int, int]]:
    """Messages in, out, late and dead-lettered by processor, from the executors' counts.

    Without rules there are only the executors' own counts.
    """
    taken: Mapping[str, int | None] = into
    given: Mapping[str, int | None] = out
    names: list[str] = sorted({*out, *into, *late, *dead})
    if rules:
        taken, given = derive(rules, out, into)
        names = list(rules)
    return {
        name: (taken.get(name) or 0, given.get(name) or 0, late.get(name, 0), dead.get(name, 0))
        for name in names
    }


def vertices_of(plan: Plan) -> tuple[Vertex, ...]:
    """The fragments of a plan, each with the fragments whose channels it reads."""
    producers: dict[str, list[FragmentId]] = {f.id: [] for f in plan.fragments}
    for channel in plan.channels:
        producers[channel.consumer_fragment].append(FragmentId(channel.producer_fragment))
    return tuple(Vertex(FragmentId(f.id), tuple(dict.fromkeys(producers[f.id]))) for f in plan.fragments)


def load(spec: ApplicationSpec, code_directory: str, config: Config) -> PlannedApplication:
    """Load and plan the application as executors do; raises ApplicationFileError for errors in its file."""
    path = str(Path(code_directory) / spec.file)
    target = path if spec.target is None else f"{path}:{spec.target}"
    application = load_application(target, spec.settings)
    plan = configured_plan(application.graph(), config)
    settings = application.naming_settings
    return PlannedApplication(vertices_of(plan), plan, application.name, settings)
