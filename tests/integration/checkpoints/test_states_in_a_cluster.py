"""A persistent Task in a cluster: asked for while it runs and when it is over, through killed processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from test_checkpoints_in_a_cluster import submit

from drivetrain.cluster.messages.applications import ApplicationState
from whole_cluster import EXECUTOR, WholeCluster, wait_for, whole_cluster

KEYS = 4
ROWS = 6_000
STEP_MS = 100

REMEMBERING = """
from drivetrain import Application, PersistentTask, State, agg, sinks, sources

app = Application("remembering")
rate = float(app.setting("rate", "60"))


class Counts(PersistentTask):
    \"\"\"How many messages each key has had.\"\"\"

    key = "key"
    state = State(agg.count(), as_of="1 min")


made = app.read(
    sources.generate(
        rows=6_000,
        rate_per_s=rate,
        start="1970-01-01T00:00:00Z",
        every="100 ms",
        columns={"key": "concat('k', id % 4)"},
    ),
    name="made",
)
made.cut().process(Counts, name="counts").sink(sinks.none())
"""


def states(cluster: WholeCluster, *arguments: str) -> dict[str, int]:
    """What `drivetrain state` tells: counts by key; nothing as long as there is nothing."""
    told = cluster.command("state", "remembering", "counts", "--json", *arguments)
    if told.returncode != 0:
        return {}
    found: list[dict[str, Any]] = json.loads(told.stdout)["states"]
    return {one["key"]: one["value"] for one in found}


@pytest.mark.timeout(900)
@pytest.mark.nightly("a whole cluster")
def test_states_are_asked_for_while_executors_are_killed(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(REMEMBERING)
    at_ms = 240_000
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        app = submit(cluster)
        for _ in range(2):
            before = wait_for(lambda: sum(states(cluster).values()), "a state", 240)
            for pid in cluster.processes(EXECUTOR):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda before=before: sum(states(cluster).values()) > before, "the state to go on", 240)
        assert cluster.client.wait(app, "5 min").state is ApplicationState.SUCCEEDED
        assert states(cluster) == {f"k{n}": ROWS // KEYS for n in range(KEYS)}
        then = states(cluster, "--at", "1970-01-01T00:04")
        assert then == {f"k{n}": at_ms // STEP_MS // KEYS for n in range(KEYS)}
