"""Embedded runs on an engine without Spark, killed between any two effects, their disk damaged."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from shell_application import OF_A_CHANGE, OF_FRAGMENTS, OF_HANDOVERS, OF_HISTORIES, OF_KAFKA
from shell_world import World, run_world

from drivetrain.crash_points import CrashPoint
from drivetrain.simulator.simulate import SEED_VARIABLE, chosen_seeds, run_seeds
from nightly_run import deaths, is_nightly

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # its process was killed


def run(
    seed: int,
    points: Sequence[CrashPoint] | None = None,
    *,
    is_growing: bool = False,
    has_history: bool = False,
    is_hasty: bool = False,
    scalings: int = 0,
    is_copied: bool = False,
    is_remote: bool = False,
    turns_back: bool = False,
    drops: bool = False,
) -> World:
    """Run an application to its end."""
    try:
        return run_world(
            seed,
            points,
            is_growing=is_growing,
            has_history=has_history,
            is_hasty=is_hasty,
            scalings=scalings,
            is_copied=is_copied,
            is_remote=is_remote,
            turns_back=turns_back,
            drops=drops,
        )
    except BaseException as error:
        error.add_note(f"run it again alone with {SEED_VARIABLE}={seed}")
        sys.stderr.write(f"failed with {SEED_VARIABLE}={seed}\n")
        raise


def test_every_message_is_shown_once_however_often_the_process_is_killed() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed)), chosen_seeds(2, at_most=1000))
    if len(worlds) > 1:
        published = [world for world in worlds if world.published_midway]
        assert len(published) > len(worlds) / 10, "checkpoints are made only at the end"


def test_a_fragment_that_comes_and_goes_takes_every_message_of_its_versions_once() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed, is_growing=True)), chosen_seeds(2, at_most=1000))
    if len(worlds) > 1:
        assert any(world.extra_rows for world in worlds), "no version with the fragment has had messages"


def test_a_fragment_that_comes_with_a_history_shows_every_message_since_then_once() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed, has_history=True)), chosen_seeds(2, at_most=1000))
    if len(worlds) > 1:
        assert sum(world.former_rows > 0 for world in worlds) > len(worlds) / 4, "few have come"


def test_a_history_that_is_asked_for_before_the_first_batch_has_every_message() -> None:
    worlds: list[World] = []
    run_seeds(
        lambda seed: worlds.append(run(seed, has_history=True, is_hasty=True)), chosen_seeds(1, at_most=500)
    )
    assert all(world.histories for world in worlds)


@pytest.mark.parametrize(
    "points",
    [*deaths([*OF_HISTORIES, CrashPoint.BEFORE_VERSION], 3, 2), [CrashPoint.AFTER_VERSION]],
    ids="+".join,
)
def test_a_process_that_dies_while_a_history_is_read_goes_on_from_there(points: list[CrashPoint]) -> None:
    worlds = [run(seed, points, has_history=True) for seed in ((3, 4) if is_nightly() else (3,))]
    assert all(world.kills == len(points) for world in worlds), "it was to die there"
    assert any(world.former_rows for world in worlds)


def test_versions_hand_over_exactly_though_the_process_dies_once_that_is_recorded() -> None:
    worlds: list[World] = []
    twice = [CrashPoint.AFTER_VERSION] * 2
    run_seeds(lambda seed: worlds.append(run(seed, twice)), chosen_seeds(2, at_most=500))
    if len(worlds) > 1:
        assert any(world.handed_over for world in worlds), "no version was compared with its time"


def test_a_handover_continues_when_the_return_from_it_is_cancelled() -> None:
    worlds: list[World] = []
    points = [CrashPoint.AFTER_VERSION, CrashPoint.AFTER_OUTCOME]
    run_seeds(lambda seed: worlds.append(run(seed, points, turns_back=True)), chosen_seeds(3, at_most=500))
    if len(worlds) > 1:
        assert sum(world.returned for world in worlds) > len(worlds) / 4, "few have turned back"
        assert any(world.handed_over for world in worlds), "no version was compared with its time"


@pytest.mark.parametrize("points", deaths([*OF_FRAGMENTS, *OF_A_CHANGE], 3, 2), ids="+".join)
def test_a_process_that_dies_while_a_fragment_starts_or_leaves_goes_on_from_there(
    points: list[CrashPoint],
) -> None:
    assert run(39, points, is_growing=True).kills == len(points), "it was to die there"


def test_fragments_are_scaled_though_the_process_is_killed_at_any_file_that_is_changed() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed, scalings=6)), chosen_seeds(2, at_most=1000))
    assert len(worlds) == 1 or sum(world.scaled for world in worlds) > len(worlds), "few were scaled"


OF_SCALING = (CrashPoint.BEFORE_DIVISION, CrashPoint.AFTER_DIVISION)


@pytest.mark.parametrize("points", deaths(OF_SCALING, 2, 3), ids="+".join)
def test_a_process_that_dies_while_a_fragment_is_scaled_goes_on_from_there(points: list[CrashPoint]) -> None:
    assert run(7, points, scalings=40).kills == len(points), "it was to die there"


def test_every_message_is_shown_once_though_the_disk_is_lost_again_and_again() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed, is_copied=True)), chosen_seeds(2, at_most=1000))
    assert len(worlds) == 1 or sum(world.lost for world in worlds) > len(worlds) / 3, "few disks were lost"


def test_every_message_is_shown_once_whichever_machine_continues_with_the_state_in_the_store() -> None:
    worlds: list[World] = []
    run_seeds(
        lambda seed: worlds.append(run(seed, is_copied=True, is_remote=True)), chosen_seeds(4, at_most=1000)
    )
    if len(worlds) > 1:
        assert sum(world.lost for world in worlds) > len(worlds) / 4, "few disks were lost"
        assert sum(world.moved for world in worlds) > len(worlds) / 4, "few have moved"
        assert any(world.refusals for world in worlds), "the store refuses nothing"


OF_COPIES = (CrashPoint.COPY_UPLOADED, CrashPoint.COPY_NAMED)


@pytest.mark.parametrize(
    "points",
    deaths([*OF_COPIES, CrashPoint.AFTER_RECORD, CrashPoint.AFTER_PUBLICATION], 4, 4),
    ids="+".join,
)
def test_a_machine_that_is_lost_at_a_point_of_a_checkpoint_costs_nothing(points: list[CrashPoint]) -> None:
    world = run(7, [CrashPoint.COPY_NAMED, *points], is_copied=True)  # the first leaves a copy
    assert world.kills == 1 + len(points), "it was to die there"
    assert world.lost > 0


OF_STATES = (CrashPoint.STATE_EMPTIED, CrashPoint.STATE_RESTORED)


def test_a_state_that_a_change_drops_begins_empty_and_is_back_after_a_rollback() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run(seed, drops=True)), chosen_seeds(2, at_most=1000))
    states = [world.states for world in worlds if world.states is not None]
    if len(worlds) > 1:
        assert sum(one.looked_at for one in states) > 10 * len(worlds), "few states were read"
        assert any(one.dropped for one in states)
        assert any(one.restored for one in states)


@pytest.mark.parametrize("point", OF_STATES)
def test_a_process_that_dies_while_a_state_is_dropped_or_comes_back_goes_on_from_there(
    point: CrashPoint,
) -> None:
    assert run(0, [point] * 2, drops=True).kills == 2, "it was to die there"


ELSEWHERE = (
    *OF_KAFKA,
    *OF_SCALING,
    *OF_HANDOVERS,
    *OF_FRAGMENTS,
    CrashPoint.HISTORY_WANTED,
    *OF_HISTORIES,
    *OF_STATES,
    *OF_COPIES,
    CrashPoint.SAVEPOINT_UPLOADED,
    CrashPoint.ENTRY_DROPPED,
    CrashPoint.SUBSCRIPTION_ASKED,
    CrashPoint.SUBSCRIPTION_NOTED,
)


OF_BATCHES = [point for point in CrashPoint if point not in (*ELSEWHERE, *OF_A_CHANGE)]


@pytest.mark.parametrize("points", [*deaths(OF_BATCHES, 4, 4), *deaths(OF_A_CHANGE, 4, 2)], ids="+".join)
def test_a_process_that_dies_at_a_point_again_and_again_goes_on_from_there(points: list[CrashPoint]) -> None:
    assert run(7, points).kills == len(points), "it was to die there"
