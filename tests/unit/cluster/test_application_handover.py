"""The progress of a handover, as an application master derives it from files and reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from drivetrain.cluster.app_master.stream.application_handover import ApplicationHandover
from drivetrain.cluster.app_master.stream.stored_versions import VersionsState
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.handover import Handover
from drivetrain.core.job.fragment_execution import ExecutionState

HANDOVER = Handover(2, 1, 5_000, frozenset({"one", "two"}))


class World:
    """A handover of two fragments."""

    def __init__(self, alone: frozenset[str] = frozenset()) -> None:
        self.over: list[Handover] = []
        self.states = dict.fromkeys(HANDOVER.touched, ExecutionState.RUNNING)
        job: Any = SimpleNamespace(execution=lambda id: SimpleNamespace(state=self.states[id]))
        self.handover = ApplicationHandover(job, self.over.append)
        self.state_read = VersionsState(ChangeState(2), handover=HANDOVER, alone=alone)
        self.handover.apply(self.state_read)

    def seen(self, fragment: str, before: int, clock_ms: int | None = None) -> None:
        self.handover.seen(VersionReport(fragment, 1, 2, before=before, clock_ms=clock_ms))

    def both(self) -> tuple[tuple[str, ...], int | None]:
        shown = self.handover.shown(ChangeState(2))
        return shown.both, shown.clock_ms


def test_it_is_over_when_every_fragment_runs_the_new_version_alone() -> None:
    world = World()
    world.seen("one", 1, 3_000)
    assert world.both() == (("one", "two"), None)
    world.seen("two", 1, 4_000)
    assert world.both() == (("one", "two"), 3_000)
    world.seen("one", 1, 5_000)
    assert world.both() == (("two",), 4_000)
    world.seen("two", 0)
    assert (world.both(), world.over) == (((), None), [HANDOVER])
    world.handover.apply(world.state_read)
    assert world.over == [HANDOVER], "an attempt has yet to record that it runs the new version alone"


def test_what_ended_before_this_application_master_began_is_over() -> None:
    world = World(alone=frozenset({"one"}))
    assert world.both()[0] == ("two",)
    world.states["two"] = ExecutionState.FINISHED
    world.handover.look()
    assert world.over == [HANDOVER]


def test_meanwhile_an_application_only_goes_back_to_the_version_before() -> None:
    world = World()
    refused = world.handover.refusal(0)
    assert refused is not None
    assert "version 1 is handing over to version 2" in refused.what
    assert world.handover.refusal(1) is None
    world.handover.apply(VersionsState(ChangeState(1)))
    assert (world.handover.refusal(0), world.over) == (None, [])
