"""Producer and subscriber in two executors of one cluster.

The window holds across processes and nothing is lost; what is damaged between them is made again while both
run.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_cluster import WholeCluster, wait_for, whole_cluster

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import FragmentView
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.runtime.channel.store import ChannelStore

sys.path.insert(0, str(Path(__file__).parents[1] / "guarantees"))

from damage import harm_entry, harm_segment

pytestmark = pytest.mark.timeout(600)

ROWS, BATCH, WINDOW = 12_000, 1_000, 3_000

FEWER_ROWS, SMALL_BATCH = 4_000, 400


def slow_application(name: str, rows: int, kept: str, seconds: float) -> str:
    """A program with a channel; each message after it takes `seconds` while the file `flag` is there."""
    return f"""
from drivetrain import Application, sinks, sources
app = Application("{name}")
flag = app.setting("flag")

def slowly(id: int) -> int:
    import os
    import time
    if os.path.exists(flag):
        time.sleep({seconds})
    return id

made = app.read(sources.generate(rows={rows}), name="made").filter("{kept}", name="left").cut()
made.with_columns(same=slowly, step="slowly").select("id", "same").sink(sinks.csv(app.setting("output")))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    with whole_cluster(tmp_path_factory.mktemp("two"), masters=1, workers=2) as made:
        yield made


def ids(output: Path) -> list[int]:
    """What was written, sorted."""
    rows = [row for file in output.glob("*.csv") for row in csv.DictReader(file.open(newline=""))]
    return sorted(int(row["id"]) for row in rows)


def test_a_window_holds_between_two_executors(cluster: WholeCluster, tmp_path: Path) -> None:
    (cluster.directory / "pressure.py").write_text(slow_application("pressure", ROWS, "id >= 0", 0.003))
    flag = tmp_path / "slow"
    flag.touch()
    accepted = cluster.submit(
        *("pressure.py", "--detached", "--json"),
        *("--set", f"flag={flag}", "--set", f"output={tmp_path / 'out'}"),
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
    assert cluster.client.wait(app, "3 min").state is ApplicationState.SUCCEEDED
    assert ids(tmp_path / "out") == list(range(ROWS))


def test_what_is_damaged_between_two_executors_is_made_again_and_shown(
    cluster: WholeCluster, tmp_path: Path
) -> None:
    (cluster.directory / "damaged.py").write_text(
        slow_application("damaged", FEWER_ROWS, "id % 3 > 0", 0.001)
    )
    flag, state = tmp_path / "slow", tmp_path / "state"
    flag.touch()
    accepted = cluster.submit(
        *("damaged.py", "--detached", "--json"),
        *("--set", f"flag={flag}", "--set", f"output={tmp_path / 'out'}"),
        *("--set", f"state.dir={state}", "--set", "app.executors=2"),
        *("--set", f"run.max-batch-rows={SMALL_BATCH}", "--set", "run.max-batch-bytes=1 KiB"),
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
    assert cluster.client.wait(app, "3 min").state is ApplicationState.SUCCEEDED
    assert ids(tmp_path / "out") == [id for id in range(FEWER_ROWS) if id % 3]
