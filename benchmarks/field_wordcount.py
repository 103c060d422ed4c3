"""Word count over 200 MB of text, as in `wordcount`, beside the peers of the field.

python -m benchmarks.field_wordcount [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import data, field_peers, field_topics, wordcount
from benchmarks.measure import Scale, main


def both(scale: Scale) -> tuple[Path, Path]:
    return wordcount.directory(scale), data.text(wordcount.WARM_MB)


def given(scale: Scale, _work: Path) -> dict[str, Any]:
    directory, warm = both(scale)
    return {
        "lines": str(directory / "lines"),
        "units": wordcount.JOB.units(scale),
        "warm_lines": str(warm / "lines"),
        "warm_units": data.total(warm, "count"),
    }


def prepare(scale: Scale) -> None:
    little = Scale(quick=True, times=scale.times)
    for each in (scale, little):
        wordcount.JOB.prepare(each)
    field_topics.fill(*both(scale), both(little)[0])


JOB = field_peers.job(
    replace(wordcount.JOB, prepare=prepare),
    field_peers.in_python(field_peers.BYTEWAX, "wordcount", given),
    field_peers.in_python(field_peers.PATHWAY, "wordcount", given),
    field_peers.on_kafka(field_peers.KAFKA_STREAMS, "wordcount", given, both),
    field_peers.in_java(field_peers.STORM, "wordcount", given),
    field_peers.in_java(field_peers.GEARPUMP, "wordcount", given),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
