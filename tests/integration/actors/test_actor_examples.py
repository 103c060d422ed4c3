"""The examples of actors in several processes do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"


def output_of(example: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)], capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout


def test_asking_an_actor_in_another_process() -> None:
    assert output_of("actors_ask_two_processes.py").splitlines() == [
        "Hello, Ada! (greeting number 1)",
        "Hello, Grace! (greeting number 2)",
        "Hello, Barbara! (greeting number 3)",
        "done",
    ]


def test_watching_an_actor_whose_process_is_killed() -> None:
    assert output_of("actors_watch_killed_process.py").splitlines() == [
        "the worker squares 7: 49",
        "the worker was lost: unreachable",
        "a new worker squares 8: 64",
        "done",
    ]
