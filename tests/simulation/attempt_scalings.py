"""A user who scales fragments of an application in a simulated cluster, and the invariants of scalings.

1. A scaling that is promised ends: when the application has finished, none is wanted any more.
2. One that is listed is listed once.
3. A fragment has the partitions of the newest scaling of it that is listed, unless the application has gone
   back to a checkpoint, or a process has died before the end was listed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from attempt_changes import REFUSALS

from drivetrain.actor import ActorPath, ActorSystem, AskError
from drivetrain.cluster.executor import change_checks
from drivetrain.cluster.messages.changing import ChangeStatus, ScaleFragment
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.errors import UserError
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.runtime.wanted_scaling import WantedScalingFile
from drivetrain.simulator import Node

if TYPE_CHECKING:
    from attempt_world import AttemptWorld

NUMBERS = (1, 2, 5)
OF_SCALINGS = (
    "the fragment that is to be scaled does not run now",
    "the fragment does not run in this executor",
    "the fragment has finished",
    "the fragment cannot be divided",
    "the application has no such fragment",
    "a fragment of the application is being scaled",
    "the last scaling is not in a checkpoint in the store yet",
)
"""Refusals that a correct scaling may get."""


class Scaler:
    """The user, whose client asks the current application master; some answers never arrive."""

    def __init__(self, world: AttemptWorld, scalings: int) -> None:
        self.world = world
        self.left = scalings
        self.begun = 0
        self.wrong: list[str] = []

    async def serve(self, node: Node) -> None:
        """Start the process of the client."""
        system = await self.world.system(node, "client")
        self.world.simulation.loop.create_task(self.run(system), name="scalings")

    async def run(self, system: ActorSystem) -> None:
        """Scale a fragment now and then."""
        world, random = self.world, self.world.random
        while self.left > 0:
            await asyncio.sleep(random.choice((0.05, 0.3, 1.0)))
            if "am" not in world.paths or world.is_over():
                continue
            fragment = random.choice(world.drawn.plan.fragments).id
            request = ScaleFragment(fragment, random.choice(NUMBERS), only_plans=random.random() < 0.1)
            with suppress(AskError):
                app_master = system.reference(ActorPath.parse(world.paths["am"]))
                answer = await app_master.ask(request, ChangeStatus, timeout_ms=20_000)
                if answer.error is None and not request.only_plans:
                    self.left, self.begun = self.left - 1, self.begun + 1
                elif answer.error is not None and answer.error.what not in {*REFUSALS, *OF_SCALINGS}:
                    self.wrong.append(f"{request} was refused: {answer.error}")

    def check_end(self) -> None:
        """Check the scalings when the application has finished."""
        assert not self.wrong, "; ".join(self.wrong)
        state = self.world.known_state()
        assert WantedScalingFile(state).read() is None, "a scaling that was promised has not ended"
        ids = [scaled.of.id for scaled in Scalings(state).all()]
        assert len(set(ids)) == len(ids), "a scaling is listed twice"
        newest = {scaled.of.fragment: scaled.of.after for scaled in Scalings(state).all()}
        for fragment, partitions in newest.items():
            if not self.world.kills and not self.world.harms:
                found = state_partitions(state / "fragments" / fragment / "checkpoint")
                assert found in (partitions, None), f"{fragment} has {found} partitions, not {partitions}"

    @property
    def listed(self) -> int:
        """How many scalings are listed."""
        state = self.world.known_state()
        return len(Scalings(state).all())


def let_every_fragment_be_scaled(patched: pytest.MonkeyPatch) -> None:
    """Treat every fragment as if it had a state that is large enough to divide."""

    def checked(_plan: Any, fragment: Any, driver: Any, partitions: int) -> ScalingState:
        before = state_partitions(driver.query.checkpoint)
        if before in (None, partitions) or driver.is_finished:
            raise UserError("the fragment cannot be divided")
        assert before is not None
        return ScalingState(fragment.id, before, partitions)

    patched.setattr(change_checks, "checked_scaling", checked)
