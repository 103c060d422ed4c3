"""A channel hop with the state in an object store, beside the disk.

The job of `hop`, four million messages through a channel, in batches of two files. With the state in a store,
a channel is on the machine's disk all the same, and its part of a checkpoint is copied.

    python -m benchmarks.remote_hop [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from functools import partial

from benchmarks import hop
from benchmarks.measure import Job, Scale, main
from benchmarks.remote_store import COLUMNS, RemoteJob


def two_files(scale: Scale) -> str:
    files = (hop.directory(scale) / "messages").iterdir()
    return f"{2 * max(file.stat().st_size for file in files)} B"


JOB = Job(
    name="remote_hop",
    title="A channel hop with the state in an object store, in batches of half a million messages",
    unit="messages/s",
    contenders=RemoteJob(
        "hop",
        warm=lambda scale: hop.directory(scale) / "warm",
        input=lambda scale: hop.directory(scale) / "messages",
        batch=two_files,
        application=partial(hop.application, cut=True),
    ).contenders(),
    prepare=hop.directory,
    units=hop.messages,
    check=hop.check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
