"""Embedded runs on an engine without Spark, killed between any two effects, their channels and state damaged."""

from __future__ import annotations

import sys

from shell_world import run_world

from drivetrain.testing.simulate import SEED_VARIABLE, chosen_seeds, run_seeds


def run(seed: int) -> None:
    try:
        run_world(seed)
    except BaseException as error:
        error.add_note(f"run it again alone with {SEED_VARIABLE}={seed}")
        sys.stderr.write(f"failed with {SEED_VARIABLE}={seed}\n")
        raise


def test_every_message_is_shown_once_however_often_the_process_is_killed() -> None:
    run_seeds(run, chosen_seeds(40, at_most=1000))
