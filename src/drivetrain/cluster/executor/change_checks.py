"""Checks that an application master requests from an executor before it changes the application.

Called by `executor`, in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from drivetrain.cluster.executor.spark_work import shown
from drivetrain.cluster.messages.changing import CheckScaling, CheckVersion, ScalingChecked, VersionChecked
from drivetrain.core.plan.counts import rules_of
from drivetrain.errors import UnavailableError
from drivetrain.spark.prepare.graph_code import graph_from_code
from drivetrain.spark.run.change_proposal import RequestedChange
from drivetrain.spark.run.scaling_checks import checked_scaling, named_fragment

if TYPE_CHECKING:
    from drivetrain.actor import Message
    from drivetrain.cluster.executor.spark_work import SparkWork
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def checked(
    work: SparkWork, message: CheckVersion | CheckScaling, drivers: Mapping[str, FragmentDriver]
) -> Message:
    """The answer to a request; `drivers` drive the fragments that run here. Raises the refusal."""
    if isinstance(message, CheckVersion):
        return _checked_version(work, message, drivers)
    if work.versions is None or message.fragment not in drivers:
        raise UnavailableError(
            "the fragment does not run in this executor",
            where=f"fragment {message.fragment}",
            remedy="try again in a moment",
        )
    plan = work.versions.plan
    fragment = named_fragment(plan, drivers, message.fragment)
    return ScalingChecked(checked_scaling(plan, fragment, drivers[fragment.id], message.partitions))


def _checked_version(
    work: SparkWork, message: CheckVersion, drivers: Mapping[str, FragmentDriver]
) -> VersionChecked:
    """Compile a proposed version for the fragments that `drivers` drive, and check it.

    Raises what is wrong with it, and UnavailableError before the application is prepared.
    """
    running = work.versions
    if running is None:
        raise UnavailableError("the executor has not joined the application yet", remedy="try again")
    stored = running.stored
    if not stored.has_proposal(message.id):
        is_kept = message.number > 0
        made_now = running.kept(message.number) if is_kept else work.make_version(message)
        stored.propose(message.id, *made_now)
    if message.only_makes:
        return VersionChecked(0, ())
    record, code = stored.proposal(message.id)
    graph = graph_from_code(code, "a proposed version")
    asked = RequestedChange(record, graph, code, message.made_how, message.against, message.options)
    made = running.check(
        message.id, asked, drivers, has_starts=message.has_starts, not_running=message.not_running
    )
    # With what the application master records, and the subscriptions of other applications.
    stored.propose(message.id, made.loaded.record, made.code or code)
    plan = made.loaded.plan
    more = (shown(plan), rules_of(plan.graph), tuple(made.window_sizes))
    touched = tuple(sorted(made.change.touched))
    return VersionChecked(made.change.number, touched, made.change.starts, *more)
