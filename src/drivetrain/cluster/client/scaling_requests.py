"""A client's requests to an application master to scale a fragment.

Problem and design: see `version_requests`. The answer to a request comes when the scaling is recorded as
wanted; the client then asks for its state repeatedly, whichever application master there is.

Called by `client` and `console_client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from drivetrain.api.durations import DEFAULT_TIMEOUT, milliseconds
from drivetrain.cluster.client.version_requests import VersionsClient, ask_change, ask_change_status
from drivetrain.cluster.messages.changing import ScaleFragment
from drivetrain.core.change.scaling_state import PlannedScaling, ScalingState
from drivetrain.errors import UnavailableError
from drivetrain.runtime.control_requests import scaling_in

if TYPE_CHECKING:
    from drivetrain.cluster.messages.applications import ApplicationView
    from drivetrain.core.change.change_state import ChangeState

_POLL_S: Final = 0.5
_ANSWERS_MS: Final = 60_000
"""How long a request may take: the executor of the fragment is asked."""


class ScalingClient(VersionsClient):
    """The part of a client that scales fragments of applications while they run."""

    async def scale(self, app: str, fragment: str, partitions: int) -> ScalingState:
        """Begin to divide the state of a fragment, or of a processor's fragment, into so many partitions.

        Returns its state. Raises the refusal, ChangeUnderwayError during a change, and UnavailableError
        when no application master answers.
        """
        return await ask_scaling(await self.application(app), fragment, partitions)

    async def plan_scaling(self, app: str, fragment: str, partitions: int) -> PlannedScaling:
        """What `scale` would do, with the size of the state; raises UserError when it is impossible."""
        return await ask_planned_scaling(await self.application(app), fragment, partitions)

    async def wait_scaled(
        self, app: str, begun: ScalingState, timeout: str = DEFAULT_TIMEOUT
    ) -> ScalingState:
        """Wait until a scaling has ended, or for `timeout`; returns the last state known.

        Continues through changes of application master. Raises UnavailableError when another one followed,
        and when no application master has answered.
        """
        return await ended_scaling(lambda: self.change_state(app), begun, timeout, self.system.loop.time)


async def ask_scaling(view: ApplicationView, fragment: str, partitions: int) -> ScalingState:
    """Have an application scale a fragment; returns the state of the scaling. Raises like `ask_change`."""
    return scaling_in(await ask_change(view, ScaleFragment(fragment, partitions), _ANSWERS_MS))


async def ask_planned_scaling(view: ApplicationView, fragment: str, partitions: int) -> PlannedScaling:
    """What an application would do to scale a fragment; raises like `ask_change`."""
    request = ScaleFragment(fragment, partitions, only_plans=True)
    planned = (await ask_change_status(view, request, _ANSWERS_MS)).planned
    if planned is None:
        raise UnavailableError(
            "the application master has not planned the scaling",
            where=view.app_id,
            remedy="use one version of Drivetrain everywhere",
        )
    return planned


async def ended_scaling(
    ask: Callable[[], Awaitable[ChangeState]], begun: ScalingState, timeout: str, now_s: Callable[[], float]
) -> ScalingState:
    """Ask for the state of a scaling until it has ended, or for `timeout`; returns the last one known.

    Raises UnavailableError when another one followed it, and when no application master has answered.
    """
    end_s = now_s() + milliseconds(timeout, "timeout") / 1000
    while True:
        is_late = now_s() >= end_s
        try:
            state = (await ask()).scaling
        except UnavailableError:
            if is_late:
                raise
        else:
            if state is not None and state.id == begun.id:
                if state.is_over or is_late:
                    return state
            elif state is not None or is_late:
                raise UnavailableError(
                    f"the scaling of fragment {begun.fragment} has ended",
                    remedy="drivetrain versions lists it, if the fragment was scaled",
                )
        await asyncio.sleep(_POLL_S)
