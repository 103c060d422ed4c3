"""What checkpoints of the whole application cost: two fragments with one each second, and without.

The job of `hop`: messages of 100 bytes from Parquet files, cut off into a channel, counted per key and
minute in a fragment of their own. With checkpoints the sink publishes at each COMMIT, without at each
batch. A batch is one file, which takes about a second: so there is a checkpoint about each second. A third
run also copies each checkpoint to an object store on this machine before its results are published; a fourth
one has its state there.

    python -m benchmarks.checkpoint [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks import data, hop, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main

WITHOUT = "drivetrain, without"
COPIED = "drivetrain, copied"
REMOTE = "drivetrain, state in a store"
BATCH = "6 MiB"


def messages(scale: Scale) -> int:
    return 200_000 if scale.quick else 12_000_000


def directory(scale: Scale) -> Path:
    """The messages of `hop`, more of them: the run must take many seconds."""
    return data.made(f"hop-{messages(scale)}", lambda made: hop.write(made, messages(scale)))


def run_stored(scale: Scale, work: Path, *, is_remote: bool) -> dict[str, float]:
    """The job with checkpoints that are copied to the object store of the tests, or are its state there."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from object_store import ENVIRONMENT, S3Server

    os.environ.update(ENVIRONMENT)
    store = S3Server(work / "s3").start()
    try:
        store.bucket("copies")
        copied = {"checkpoint.copy-to": "s3://copies/checkpoints"}
        remote = {"state.dir": "s3://copies/states", "state.work-dir": str(work / "state")}
        return run_mode(scale, work, "on", store.sets() | (remote if is_remote else copied))
    finally:
        store.kill()


def run_mode(scale: Scale, work: Path, mode: str, more: Mapping[str, str] | None = None) -> dict[str, float]:
    """The job with `checkpoint.mode` and more keys; `checkpoints` is how many were made."""
    from drivetrain import run
    from drivetrain.config import Config
    from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles

    _, start_s = peers.start_drivetrain(work)
    source = directory(scale)
    keys = {"checkpoint.mode": mode, "run.max-batch-bytes": BATCH}
    warm = Config.load(None, {}, keys | {"state.dir": str(work / "warm")})
    run(hop.application(source / "warm", work / "warm-out", cut=True), warm)
    config = Config.load(None, {}, keys | {"state.dir": str(work / "state")} | dict(more or {}))
    with Timed() as timed:
        run(hop.application(source / "messages", work / "out", cut=True), config)
    [notes] = (work / "state").rglob("application.json")
    known = CheckpointFiles(notes.parent).transaction()
    made = 0 if known is None or known.record is None else known.record.txid + 1
    return timed.figures(start_s=start_s, checkpoints=made)


JOB = Job(
    name="checkpoint",
    title="Checkpoints: throughput of two fragments with one each second",
    unit="messages/s",
    contenders=(
        Contender(OURS, lambda scale, work: run_mode(scale, work, "on")),
        Contender(WITHOUT, lambda scale, work: run_mode(scale, work, "off")),
        Contender(COPIED, partial(run_stored, is_remote=False)),
        Contender(REMOTE, partial(run_stored, is_remote=True)),
    ),
    prepare=lambda scale: data.read_files(directory(scale)),
    units=messages,
    check=lambda scale, work: hop.check_output(directory(scale), work),
    goals={WITHOUT: 0.9},
    columns=(("checkpoints", "checkpoints"),),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
