"""Random changes of random graphs while messages flow out of order and processes are killed, on real Spark.

A process runs the application. It is killed at random moments and started again, with changes under way or
not. A naive model says what every sink has to show: exact.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from random_model import Model
from random_runs import LATEST_KILL_S, DrawnRun, Stream
from shop import wait_until
from timed import Disordered


@pytest.mark.nightly(
    "test_shells_under_kills, test_attempts_under_faults draw changes; test_handovers compares versions"
)
@pytest.mark.parametrize(("seed", "changes", "kills"), [(3, 2, 1), *((seed, 6, 3) for seed in range(4, 16))])
def test_every_version_shows_what_the_messages_of_its_span_make(
    tmp_path: Path, seed: int, changes: int, kills: int
) -> None:
    random = Random(seed)
    feed = Disordered(tmp_path, seed)
    feed.put(3)
    stream = Stream(feed, 0.5)
    run = DrawnRun(tmp_path, random, stream)
    deadly = set(random.sample(range(changes), kills))
    try:
        run.start()
        with stream:
            run.settle()
            for number in range(changes):
                delay_s = random.uniform(0.0, LATEST_KILL_S) if number in deadly else None
                with run.killed_after(delay_s):
                    run.change()
        model = Model(tmp_path, run.versions(), feed.sent)
        wait_until(model.is_complete, run.is_running)
        run.stop()
    finally:
        run.close()
    assert model.is_complete()
    assert run.kills == kills
