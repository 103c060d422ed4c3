"""Ten-second windows per key over 5 million JSON events, as in `windows`, beside the peers of the field.

python -m benchmarks.field_windows [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import data, field_peers, field_topics, windows
from benchmarks.measure import Scale, main


def both(scale: Scale) -> tuple[Path, Path]:
    return windows.directory(scale), data.events(windows.WARM_EVENTS)


def given(scale: Scale, _work: Path) -> dict[str, Any]:
    directory, warm = both(scale)
    return {
        "lines": str(directory / "lines"),
        "units": windows.JOB.units(scale),
        "warm_lines": str(warm / "lines"),
        "warm_units": windows.WARM_EVENTS,
    }


def prepare(scale: Scale) -> None:
    little = Scale(quick=True, times=scale.times)
    for each in (scale, little):
        windows.JOB.prepare(each)
    field_topics.fill(*both(scale), both(little)[0])


JOB = field_peers.job(
    replace(windows.JOB, prepare=prepare),
    field_peers.in_python(field_peers.BYTEWAX, "windows", given),
    field_peers.in_python(field_peers.PATHWAY, "windows", given),
    field_peers.in_flink(field_peers.FLINK_STREAM, "windows", given),
    field_peers.on_kafka(field_peers.KAFKA_STREAMS, "windows", given, both),
    field_peers.on_kafka(field_peers.QUIX, "windows", given, both),
    field_peers.in_java(field_peers.STORM, "windows", given),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
