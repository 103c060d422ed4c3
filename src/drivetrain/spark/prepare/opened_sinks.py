"""The open sinks of an application: one writer for each sink, shared by all fragments in this process.

Problem: sinks of several fragments publish together, and a change of the running application can add sinks at
the same time.

Called by `execution` and `application_versions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.core.plan.plan import Plan
from drivetrain.runtime.checkpoints.claim_file import claim_name
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.connector.sink import ClaimingSinkWriter, SinkContext, SinkWriter


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
    opened, claim = dict(known or {}), claim_name(rundir.path)
    fragments = {id: fragment.id for fragment in plan.fragments for id in fragment.processors}
    for node in plan.graph.nodes.values():
        if node.operation.target is not None and node.id not in opened:
            directory = str(rundir.path / "sinks" / node.id)
            require_own = partial(rundir.ownership.require, fragments.get(node.id))
            context = SinkContext(
                rundir.app_id, node.id, directory, config, rundir.life.number, claim, require_own
            )
            opened[node.id] = open_sink(node.operation.target, context)
    return OpenSinks(opened)


def claim_sinks(sinks: Mapping[str, SinkWriter], rundir: RunDirectory) -> None:
    """Give the claim of its state directory to the sinks of an application."""
    claim = claim_name(rundir.path)
    for sink in sinks.values():
        if claim and isinstance(sink, ClaimingSinkWriter):
            sink.claimed(claim)


def succeed_in_sinks(sinks: Mapping[str, SinkWriter], rundir: RunDirectory) -> None:
    """Take the sinks over from a process that has copied no checkpoint, or whose state is not kept."""
    claim = claim_name(rundir.path)
    for sink in sinks.values():
        if isinstance(sink, ClaimingSinkWriter):
            sink.succeed(claim, None, is_copied=True)
