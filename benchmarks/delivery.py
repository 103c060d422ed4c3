"""What a weaker delivery buys: how late a message is seen behind a channel, in each mode.

The application and the input of `hop_latency`: small files into a watched directory, their lines to a
function in the driver, behind a channel. In the default mode the channel's files are synced to disk before
the batch is told to anybody; in the others they are not. `write` and `entry` are the parts of a batch that
it touches: the job that writes the segments, and the log entry. How much it is depends on the disk: on one
that answers a sync from its memory it is next to nothing.

    python -m benchmarks.delivery [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import peers
from benchmarks.hop_latency import Feeder, Until, application, files, measured_parts
from benchmarks.measure import OURS, Contender, Job, Scale, main

AT_LEAST = "drivetrain, at least once"
AT_MOST = "drivetrain, at most once"


def run_mode(scale: Scale, work: Path, delivery: str) -> dict[str, float]:
    """The figures of `hop_latency` for one mode."""
    from drivetrain import run
    from drivetrain.config import Config

    _, start_s = peers.start_drivetrain(work)
    parts = measured_parts("seen")
    feeder = Feeder(work / "lines", files(scale))
    feeder.start()
    keys = {"state.dir": str(work / "state"), "run.delivery": delivery}
    run(application(work / "lines", feeder, cut=True), Config.load(None, {}, keys), Until(feeder))
    return feeder.figures(start_s, **parts.medians())


JOB = Job(
    name="delivery",
    title="Delivery modes: how late a message is seen behind a channel",
    unit="ms",
    contenders=(
        Contender(OURS, lambda scale, work: run_mode(scale, work, "exactly once")),
        Contender(AT_LEAST, lambda scale, work: run_mode(scale, work, "at least once")),
        Contender(AT_MOST, lambda scale, work: run_mode(scale, work, "at most once")),
    ),
    prepare=lambda _scale: None,
    units=files,
    check=lambda _scale, _work: None,  # the lines are compared where they arrive
    measure="latency_ms",
    lower_is_better=True,
    columns=(("batch_ms", "batch"), ("write_ms", "write"), ("entry_ms", "entry")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
