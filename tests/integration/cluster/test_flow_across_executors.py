"""Producer and subscriber in two executors: the window holds across processes, and nothing is lost."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from whole_cluster import wait_for, whole_cluster

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import FragmentView

pytestmark = pytest.mark.timeout(600)

ROWS, BATCH, WINDOW = 12_000, 1_000, 3_000

PRESSURE = """
from drivetrain import Application, sinks, sources
app = Application("pressure")
flag = app.setting("flag")

def slowly(id: int) -> int:
    import os
    import time
    if os.path.exists(flag):
        time.sleep(0.003)
    return id

made = app.read(sources.generate(rows=12_000), name="made").filter("id >= 0", name="left").cut()
made.with_columns(same=slowly, name="slowly").select("id", "same").sink(sinks.csv(app.setting("output")))
"""


def test_a_window_holds_between_two_executors(tmp_path: Path) -> None:
    (tmp_path / "pressure.py").write_text(PRESSURE)
    flag = tmp_path / "slow"
    flag.touch()
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        accepted = cluster.submit(
            *("pressure.py", "--detached", "--json", "--set", f"flag={flag}", "--set", "output=out"),
            *("--set", "app.executors=2", "--set", f"run.max-batch-rows={BATCH}"),
            *("--set", f"channel.window-messages={WINDOW}"),
        )
        assert accepted.returncode == 0, accepted.stderr
        app = json.loads(accepted.stdout)["app_id"]
        most = 0

        def blocked() -> dict[str, FragmentView] | None:
            nonlocal most
            view, status = cluster.status(app)
            assert not view.state.is_over, view.why
            fragments = {} if status is None else {f.fragment: f for f in status.fragments}
            for fragment in fragments.values():
                most = max([most, *(channel.lag_rows for channel in fragment.channels)])
            return fragments if fragments and fragments["made"].blocked_by == "slowly" else None

        fragments = wait_for(blocked, "the producer to wait for its subscriber")
        assert fragments["made"].executor != fragments["slowly"].executor
        before = fragments["made"].batch_id

        def goes_on() -> bool:
            found = blocked()
            return found is not None and found["made"].batch_id > before

        wait_for(goes_on, "an acknowledgement to make room for a batch")
        assert WINDOW <= most < WINDOW + BATCH
        flag.unlink()
        assert cluster.client.wait(app, timeout_ms=180_000).state is ApplicationState.SUCCEEDED
    rows = [row for file in (tmp_path / "out").glob("*.csv") for row in csv.DictReader(file.open(newline=""))]
    assert sorted(int(row["id"]) for row in rows) == list(range(ROWS))
