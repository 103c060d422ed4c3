"""Checks that an application master requests from an executor before it changes the application.

Called by `executor`, in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from drivetrain.cluster.messages.changing import CheckScaling, CheckVersion, ScalingChecked
from drivetrain.errors import UnavailableError
from drivetrain.spark.run.scaling_checks import checked_scaling, named_fragment

if TYPE_CHECKING:
    from drivetrain.actor import Message
    from drivetrain.cluster.executor.spark_work import Work
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def checked(
    work: Work, message: CheckVersion | CheckScaling, drivers: Mapping[str, FragmentDriver]
) -> Message:
    """The answer to a request; `drivers` drive the fragments that run here. Raises the refusal."""
    if isinstance(message, CheckVersion):
        return work.check_version(message, drivers)
    if work.versions is None or message.fragment not in drivers:
        raise UnavailableError(
            "the fragment does not run in this executor",
            where=f"fragment {message.fragment}",
            remedy="try again in a moment",
        )
    plan = work.versions.plan
    fragment = named_fragment(plan, drivers, message.fragment)
    return ScalingChecked(checked_scaling(plan, fragment, drivers[fragment.id], message.partitions))
