"""A channel hop with the state in an object store, beside the disk.

The job of `hop`, four million messages through a channel, in batches of two files. With the state in a store,
a channel is on the machine's disk all the same, and its part of a checkpoint is copied.

    python -m benchmarks.remote_hop [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import hop, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.remote_store import COLUMNS, LOCAL, remote_config, with_requests
from drivetrain.config import Config


def two_files(scale: Scale) -> str:
    files = (hop.directory(scale) / "messages").iterdir()
    return f"{2 * max(file.stat().st_size for file in files)} B"


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    with remote_config(work, "hop", run__max_batch_bytes=two_files(scale)) as (config, requests):
        return with_requests(_run(scale, work, config), requests)


def run_local(scale: Scale, work: Path) -> dict[str, float]:
    sets = {"state.dir": str(work / "state"), "run.max-batch-bytes": two_files(scale)}
    return _run(scale, work, Config.load(None, {}, sets))


def _run(scale: Scale, work: Path, config: Config) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    source = hop.directory(scale)
    run(hop.application(source / "warm", work / "warm-out", cut=True), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(hop.application(source / "messages", work / "out", cut=True), config)
    return timed.figures(start_s=start_s, batches=result.batches)


JOB = Job(
    name="remote_hop",
    title="A channel hop with the state in an object store, in batches of half a million messages",
    unit="messages/s",
    contenders=(Contender(OURS, run_drivetrain), Contender(LOCAL, run_local)),
    prepare=hop.directory,
    units=hop.messages,
    check=hop.check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
