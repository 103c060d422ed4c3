"""The index of watches between systems, and what `check` says when it and the cells disagree."""

from __future__ import annotations

import pytest
from actor_harness import Recorder, in_system, quiet

from drivetrain.actor import ActorPath, ActorRef, ActorSystem, Address
from drivetrain.actor.cell import Cell
from drivetrain.actor.remote_watches import RemoteWatches
from drivetrain.errors import InternalError

LOST = Address("elsewhere", "h", 1, 5)
KEPT = Address("elsewhere", "h", 2, 6)


def remote(system: ActorSystem, address: Address, uid: int) -> ActorRef:
    return system.reference(ActorPath(address, ("user", f"a{uid}"), uid))


@in_system
async def test_a_dead_system_takes_its_own_watches_along_and_no_others(system: ActorSystem) -> None:
    index = RemoteWatches()
    one, two = (system.spawn(lambda: Recorder([])) for _ in range(2))
    dead, alive = remote(system, LOST, 1), remote(system, KEPT, 1)
    index.add_outbound(dead, one)
    index.add_outbound(dead, two)
    index.add_outbound(alive, one)
    index.add_inbound(dead, two)
    index.add_inbound(alive, two)
    assert index.open == 3
    assert index.end_address(LOST) == ([(dead, one), (dead, two)], [(dead, two)])
    assert index.end_address(LOST) == ([], [])
    assert (index.outbound, index.inbound) == ({(alive, one)}, {(alive, two)})


@in_system
async def test_a_watch_is_removed_once(system: ActorSystem) -> None:
    index = RemoteWatches()
    watcher, target = system.spawn(lambda: Recorder([])), remote(system, LOST, 1)
    assert not index.remove_outbound(target, watcher)
    index.add_outbound(target, watcher)
    index.add_outbound(target, watcher)
    assert index.remove_outbound(target, watcher)
    assert not index.remove_outbound(target, watcher)
    assert (index.open, index.outbound) == (0, set())


@in_system
async def test_an_index_that_disagrees_with_the_cells_is_found(system: ActorSystem) -> None:
    here = system.spawn(lambda: Recorder([]), "here")
    there = remote(system, LOST, 1)
    await quiet()
    (cell,) = (each for each in system.cells() if each.ref is here)
    index = system.remote_watches

    def require_broken() -> None:
        with pytest.raises(InternalError, match="watch invariant 3"):
            system.check()

    index.add_outbound(there, here)
    require_broken()
    cell.watching = {there: None}
    system.check()
    index.remove_outbound(there, here)
    require_broken()
    cell.watching = None
    index.add_inbound(there, here)
    require_broken()
    cell.watchers = {there: None}
    system.check()
    index.remove_inbound(there, here)
    require_broken()
    cell.watchers = None


@in_system
async def test_a_cell_that_its_parent_does_not_know_is_found(system: ActorSystem) -> None:
    system.spawn(lambda: Recorder([]), "known")
    await quiet()
    cell: Cell = next(each for each in system.cells() if each.name == "known")
    assert cell.parent is not None
    assert cell.parent.children is not None
    cell.parent.children["other"] = cell
    del cell.parent.children["known"]
    with pytest.raises(InternalError, match="cell invariant 1"):
        system.check()
    cell.parent.children["known"] = cell
    del cell.parent.children["other"]
