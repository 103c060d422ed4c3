"""Producer and subscriber in two executors: what is damaged between them is made again while both run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from damage import harm_entry, harm_segment
from whole_cluster import wait_for, whole_cluster

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.core.channel_progress import ChannelProgress
from drivetrain.spark.channel.store import ChannelStore

ROWS, BATCH = 4_000, 400

DAMAGED = """
from drivetrain import Application, sinks, sources
app = Application("damaged")
flag = app.setting("flag")

def slowly(id: int) -> int:
    import os
    import time
    if os.path.exists(flag):
        time.sleep(0.001)
    return id

made = app.read(sources.generate(rows=4_000), name="made").filter("id % 3 > 0", name="left").cut()
made.with_columns(same=slowly, name="slowly").select("id", "same").sink(sinks.csv(app.setting("output")))
"""


@pytest.mark.timeout(300)
def test_what_is_damaged_between_two_executors_is_made_again_and_shown(tmp_path: Path) -> None:
    (tmp_path / "damaged.py").write_text(DAMAGED)
    flag, state = tmp_path / "slow", tmp_path / "state"
    flag.touch()
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        accepted = cluster.submit(
            *("damaged.py", "--detached", "--json", "--set", f"flag={flag}", "--set", "output=out"),
            *("--set", f"state.dir={state}", "--set", "app.executors=2"),
            *("--set", f"run.max-batch-rows={BATCH}", "--set", "run.max-batch-bytes=1 KiB"),
        )
        assert accepted.returncode == 0, accepted.stderr
        app = json.loads(accepted.stdout)["app_id"]

        def unread() -> tuple[ChannelStore, list[int]] | None:
            for path in state.glob("*/channels/left--slowly"):
                store = ChannelStore(str(path))
                position = max(store.positions().values(), default=0)
                numbers = [n for n in store.numbers() if n > position and store.read_entry(n).segments]
                if len(numbers) >= 6:
                    return store, numbers
            return None

        store, numbers = wait_for(unread, "entries that wait for the subscriber")
        harms = [harm_segment("deleted"), harm_segment("flipped"), harm_entry("cut")]
        for number, harm in zip(numbers[1:], harms, strict=False):
            assert harm(store, number)

        def repaired() -> ChannelProgress | None:
            view, status = cluster.status(app)
            assert not view.state.is_over, view.why
            channels = () if status is None else [c for f in status.fragments for c in f.channels]
            return next((c for c in channels if (c.losses, c.replays) == (3, 3)), None)

        wait_for(repaired, "three repairs to be shown")
        _, status = cluster.status(app)
        assert status is not None
        executors = {fragment.fragment: fragment.executor for fragment in status.fragments}
        assert executors["made"] != executors["slowly"]
        assert "3 losses, 3 replays" in cluster.command("show", app, expect=0).stdout
        flag.unlink()
        assert cluster.client.wait(app, timeout_ms=180_000).state is ApplicationState.SUCCEEDED
    rows = [row for file in (tmp_path / "out").glob("*.csv") for row in csv.DictReader(file.open(newline=""))]
    assert sorted(int(row["id"]) for row in rows) == [id for id in range(ROWS) if id % 3]
