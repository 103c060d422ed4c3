"""From the status of an application to what people read: `explained.txt`, for review.

`TESTS_REWRITE=1` writes the file anew; read the diff.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import msgspec
from scripted_cluster import world

from drivetrain.cli.inspection.explain import show_findings
from drivetrain.cluster.client.cluster_situation import situation_of
from drivetrain.cluster.messages.applications import ApplicationState, MasterView, WorkerView
from drivetrain.cluster.messages.following import FragmentView
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointDone, CheckpointFigures
from drivetrain.core.checkpoint.transaction import Phase
from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, LastBatch, Phases
from drivetrain.core.job.history import STEP_MS, FragmentMoment, History, Moment
from drivetrain.terminal import Console

GOLDEN = Path(__file__).with_name("explained.txt")

# The phases were recorded from a run whose sink sleeps, and stretched.
SLOW_SINK = LastBatch(
    29,
    709,
    Phases(source_ms=113, planning_ms=106, computing_ms=487, sink_ms=41_000, log_ms=163, other_ms=372),
    {"to-db": 41_000},
    state_ms=39,
)
FRAGMENTS = (
    FragmentView(
        "read",
        "running",
        1,
        batch_id=22,
        rows_total=12_778,
        rows_per_s=149.0,
        batch_ms=1_842,
        blocked_by="daily",
        stalled_ms=72_000,
        waiting_for="room in front of daily",
        figures=FragmentFigures(
            Counters(23, blocked_ms={"read--daily": 70_500}),
            blocked_now_ms=70_000,
            partition_rows={"read/0": 90_000, "read/1": 400, "read/2": 380},
            silent_partitions=("read/3",),
        ),
    ),
    FragmentView(
        "daily",
        "running",
        1,
        batch_id=29,
        rows_per_s=17.0,
        batch_ms=42_241,
        lag_rows=9_000,
        channels=(ChannelProgress("read--daily", "read", "daily", lag_rows=9_000, lag_ms=30_000),),
        figures=FragmentFigures(
            Counters(30), SLOW_SINK, state_rows=218_000, state_bytes=90_000_000, latency_p99_ms=84_000
        ),
    ),
)
HISTORY = History(
    tuple(
        Moment(STEP_MS * n, fragments={"daily": FragmentMoment(1, state_rows=100_000 + 2_000 * n)})
        for n in range(60)
    )
)


def test_a_status_is_explained_as_the_file_says() -> None:
    done = CheckpointDone(7, None, 0, 2_000, 1_000, {"read": 200})
    status = world.status_of(
        fragments=FRAGMENTS,
        checkpoints=CheckpointFigures(8, Phase.COMMITTED, False, None, 7, 0, done, (), 10_000),
        checkpoints_now_ms=102_000,
        disk_free=3 * 2**30,
        disk_total=100 * 2**30,
        counts={"read": (0, 90_780, 0, 0), "to-db": (1_000, 0, 40, 20)},
    )
    view = world.view_of("shop-3", state=ApplicationState.ACTIVE, epoch=1)
    masters = [MasterView(f"m{n}:7070", n == 1, 4, None if n == 3 else 100) for n in (1, 2, 3)]
    workers = [WorkerView("w", "worker-1", "here", 4, 1, 0, memory_free=200 * 2**20)]
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(status), type=type(status))
    console = Console(file=io.StringIO(), width=400, color_system=None)
    show_findings(diagnose(situation_of(view, sent, workers, masters, HISTORY)), console)
    told = "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]
    if os.environ.get("TESTS_REWRITE"):
        GOLDEN.write_text(told)
    assert told == GOLDEN.read_text(), "TESTS_REWRITE=1 writes it anew"
