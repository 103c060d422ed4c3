"""The open sinks of an application: one writer for each sink, shared by all fragments in this process.

Problem: sinks of several fragments publish together, and a change of the running application can add sinks at
the same time.

Called by `execution` and `application_versions`; `refuse_shared_targets` by every module that plans a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink, sink_path
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import GraphError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class OpenSinks(Mapping[str, SinkWriter]):
    """The sinks of an application by processor id; another version of it may add some, from any thread."""

    def __init__(self, sinks: Mapping[str, SinkWriter]) -> None:
        self._sinks = dict(sinks)

    def __getitem__(self, id: str) -> SinkWriter:
        return self._sinks[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sinks)

    def __len__(self) -> int:
        return len(self._sinks)

    def add(self, sinks: Mapping[str, SinkWriter]) -> None:
        """Add sinks, or replace those with the same ids; a running iteration sees the earlier ones."""
        self._sinks = {**self._sinks, **sinks}


def open_sinks(
    plan: Plan, rundir: RunDirectory, config: Config, known: Mapping[str, SinkWriter] | None = None
) -> OpenSinks:
    """The sinks of an application by processor id; those in `known` are open already."""
    opened = dict(known or {})
    for node in plan.graph.nodes.values():
        if node.operation.target is not None and node.id not in opened:
            directory = str(rundir.path / "sinks" / node.id)
            context = SinkContext(rundir.app_id, node.id, directory, config, rundir.life.number)
            opened[node.id] = open_sink(node.operation.target, context)
    return OpenSinks(opened)


def refuse_shared_targets(plan: Plan) -> None:
    """Raise `GraphError` when two sinks write to one place, where they would mix up their results."""
    taken: dict[str, str] = {}
    for node in plan.graph.nodes.values():
        sink = node.operation.target
        target = None if sink is None else sink_path(sink)
        if target is None:
            continue
        if target in taken:
            raise GraphError(
                f"two sinks write to {target}",
                where=str(node),
                got=f"the other is {taken[target]}",
                remedy="give each sink a directory of its own, or union the streams before one sink",
            )
        taken[target] = str(node)
