"""Producer and subscriber in two executors of one cluster.

The window holds across processes and nothing is lost; what is damaged between them is made again while both
run. One application is all of it: each test finds it as the one before has left it, or as it began.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import FragmentView
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.runtime.channel.store import ChannelStore
from whole_cluster import WholeCluster, wait_for, whole_cluster

sys.path.insert(0, str(Path(__file__).parents[1] / "guarantees"))

from damage import harm_entry, harm_segment

pytestmark = pytest.mark.timeout(600)

ROWS, BATCH, WINDOW = 5_600, 400, 2_000
KEPT = [id for id in range(ROWS) if id % 3]

PRESSURE = f"""
from drivetrain import Application, sinks, sources
app = Application("pressure")
flag = app.setting("flag")

def slowly(id: int) -> int:
    import os
    import time
    if os.path.exists(flag):
        time.sleep(0.005)
    return id

made = app.read(sources.generate(rows={ROWS}), name="made").filter("id % 3 > 0", name="left").cut()
made.with_columns(same=slowly, step="slowly").select("id", "same").sink(sinks.csv(app.setting("output")))
"""
"""A program with a channel; each message after it takes its time while the file `flag` is there."""


@dataclass
class Pressure:
    """The application above, each of whose two fragments runs in an executor of its own."""

    cluster: WholeCluster
    directory: Path
    app: str
    most: int = 0
    """The most messages that have waited in the channel."""

    def fragments(self) -> dict[str, FragmentView]:
        """Its fragments by id, as they are told; empty as long as nothing is."""
        view, status = self.cluster.status(self.app)
        assert not view.state.is_over, view.why
        found = {} if status is None else {f.fragment: f for f in status.fragments}
        self.most = max([self.most, *(c.lag_rows for f in found.values() for c in f.channels)])
        return found

    def blocked(self) -> dict[str, FragmentView] | None:
        """Its fragments, if one waits for the other."""
        found = self.fragments()
        return found if found and found["made"].blocked_by == "slowly" else None

    def ids(self) -> list[int]:
        """What was written, sorted."""
        files = (self.directory / "out").glob("*.csv")
        return sorted(int(row["id"]) for file in files for row in csv.DictReader(file.open(newline="")))


@pytest.fixture(scope="module")
def pressure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pressure]:
    directory = tmp_path_factory.mktemp("two")
    (directory / "slow").touch()
    (directory / "pressure.py").write_text(PRESSURE)
    with whole_cluster(directory, masters=1, workers=2) as cluster:
        accepted = cluster.submit(
            *("pressure.py", "--detached", "--json", "--set", "app.executors=2"),
            *("--set", f"flag={directory / 'slow'}", "--set", f"output={directory / 'out'}"),
            *("--set", f"state.dir={directory / 'state'}", "--set", f"channel.window-messages={WINDOW}"),
            *("--set", f"run.max-batch-rows={BATCH}", "--set", "run.max-batch-bytes=1 KiB"),
        )
        assert accepted.returncode == 0, accepted.stderr
        yield Pressure(cluster, directory, json.loads(accepted.stdout)["app_id"])


@pytest.mark.nightly("simulated by test_flow_under_faults and test_attempts_under_faults")
def test_a_window_holds_between_two_executors(pressure: Pressure) -> None:
    fragments = wait_for(pressure.blocked, "the producer to wait for its subscriber")
    assert fragments["made"].executor != fragments["slowly"].executor
    before = fragments["made"].batch_id

    def goes_on() -> bool:
        found = pressure.blocked()
        return found is not None and found["made"].batch_id > before

    wait_for(goes_on, "an acknowledgement to make room for a batch")
    assert WINDOW <= pressure.most < WINDOW + BATCH


@pytest.mark.nightly("simulated by test_flow_under_faults and test_attempts_under_faults")
def test_what_is_damaged_between_two_executors_is_made_again_and_shown(pressure: Pressure) -> None:
    def unread() -> tuple[ChannelStore, list[int]] | None:
        for path in (pressure.directory / "state").glob("*/channels/left--slowly"):
            store = ChannelStore(str(path))
            position = max(store.positions().values(), default=0)
            numbers = [n for n in store.numbers() if n > position and store.read_entry(n).segments]
            if len(numbers) >= 5:
                return store, numbers
        return None

    store, numbers = wait_for(unread, "entries that wait for the subscriber")
    harms = [harm_segment("deleted"), harm_segment("flipped"), harm_entry("cut")]
    for number, harm in zip(numbers[1:], harms, strict=False):
        assert harm(store, number)

    def repaired() -> ChannelProgress | None:
        channels = [c for f in pressure.fragments().values() for c in f.channels]
        return next((c for c in channels if (c.losses, c.replays) == (3, 3)), None)

    wait_for(repaired, "three repairs to be shown")
    fragments = pressure.fragments()
    assert fragments["made"].executor != fragments["slowly"].executor
    assert "3 losses, 3 replays" in pressure.cluster.command("show", pressure.app, expect=0).stdout


@pytest.mark.nightly("simulated by test_flow_under_faults and test_attempts_under_faults")
def test_behind_both_nothing_is_lost(pressure: Pressure) -> None:
    (pressure.directory / "slow").unlink()
    assert pressure.cluster.client.wait(pressure.app, "3 min").state is ApplicationState.SUCCEEDED
    assert pressure.ids() == KEPT
