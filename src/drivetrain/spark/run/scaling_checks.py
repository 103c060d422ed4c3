"""Checks whether the state of a fragment can be divided into a number of partitions, and describes the
scaling.

Called by `scaling` in an embedded run, and by `cluster.executor.change_checks`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from drivetrain.api.operations import Process
from drivetrain.core.change.scaling_state import MOST_PARTITIONS, ScalingState, no_such_fragment
from drivetrain.core.figures import show_counted
from drivetrain.errors import UserError
from drivetrain.runtime.state.state_partitions import state_bytes, state_partitions
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.compile.keyed import BUCKETS

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Fragment, Plan
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def named_fragment(plan: Plan, running: Collection[str], name: str) -> Fragment:
    """The running fragment with that id, or with that processor; raises UserError if there is none."""
    fragment = next((f for f in plan.fragments if name == f.id or name in f.processors), None)
    if fragment is None or fragment.id not in running:
        raise no_such_fragment(plan.application, running, name)
    return fragment


def checked_scaling(plan: Plan, fragment: Fragment, driver: FragmentDriver, partitions: int) -> ScalingState:
    """The scaling of a fragment of `plan`, which `driver` drives, in its first stage.

    Raises UserError when it is impossible.
    """
    where = f"fragment {fragment.id}"
    if fragment.stateful is None:
        raise UserError(
            "the fragment keeps no state, so there is nothing to divide",
            where=where,
            remedy="its batches use all cores that Spark has, and as many tasks as its input has parts",
        )
    query = driver.query
    if not isinstance(query, MicroBatchQuery):
        raise UserError(
            "a fragment in real-time mode is never between two batches",
            where=where,
            remedy='stop the application, and run it with latency="batch"',
        )
    _require_useful(plan, fragment.stateful, partitions)
    before = state_partitions(query.checkpoint)
    if before is None:
        raise UserError(
            "the fragment has no state yet",
            where=where,
            remedy="scale it after its first batch; or start it over with "
            f"--fresh --set spark.shuffle-partitions={partitions}",
        )
    if before == partitions:
        raise UserError(
            f"the state has {show_counted(partitions, 'partition')} already",
            where=where,
            remedy="give another number",
        )
    if driver.is_finished:
        raise UserError("the fragment has finished", where=where, remedy="nothing is left to scale")
    return ScalingState(fragment.id, before, partitions, state_bytes(query.checkpoint))


def _require_useful(plan: Plan, stateful: str, partitions: int) -> None:
    """Raise UserError for a number of partitions of which some would always be empty."""
    most, why = MOST_PARTITIONS, "each has files of its own, which every batch writes"
    operation = plan.graph.nodes[stateful].operation
    if operation.runs[0] == "task":
        most, why = BUCKETS, f"the keys of {stateful} are in {BUCKETS} groups, which stay together"
        if isinstance(operation, Process) and operation.persistent is None and operation.keyed is None:
            most, why = operation.parallelism, f"{stateful} has {operation.parallelism} instances"
    if not 1 <= partitions <= most:
        raise UserError(
            "the state cannot be divided into so many partitions",
            where=stateful,
            expected=f"1 to {most}: {why}",
            got=str(partitions),
            remedy="give a number that fits",
        )
