"""The peers of the field as contenders of a job, beside ours, PySpark and Flink SQL.

A job of the field is one of the main table's, on the same data, with more contenders and without its growth:
their CPU seconds for a million units are those of a run after a warm-up. Peers that would take too long get
little data, as in a quick run; a column tells how much each one got. docs/benchmarks.md says why a peer does
not take part in a job.

Called by the jobs of the field (`field_wordcount`, …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import field_install, field_topics, peer_process, peers
from benchmarks.measure import Contender, Job, Scale

Given = Callable[[Scale, Path], dict[str, Any]]
"""What a peer is told, besides the name of the job and where to work."""

DataOf = Callable[[Scale], tuple[Path, Path]]
"""The directories of a job's data, and of the little data that it warms up with."""

BYTEWAX = "bytewax"
PATHWAY = "pathway"
QUIX = "quix streams"
KAFKA_STREAMS = "kafka streams"
STORM = "storm"
GEARPUMP = "gearpump"
FLINK_STREAM = "flink datastream, python"
SCRIPTS = Path(__file__).with_name("peers_python")
COLUMNS = (
    ("units", "of how many"),
    ("seconds", "seconds"),
    ("start_s", "start and warm-up, s"),
    ("peak_mib", "peak memory, MiB"),
    ("cpu_s", "CPU s"),
    ("cpu_per_million_s", "CPU s per million"),
    ("broker_cpu_s", "CPU s of the broker"),
)


def job(usual: Job, *others: Contender, without: tuple[str, ...] = (peers.DEFAULTS,)) -> Job:
    """The job of the field for a usual one: its contenders, but for those `without`, and others."""
    taking_part = [contender for contender in usual.contenders if contender.name not in without]
    return replace(
        usual,
        name=f"field_{usual.name}",
        contenders=tuple(_per_million(contender, usual) for contender in (*taking_part, *others)),
        columns=COLUMNS,
        goals={},
        grows=False,
    )


def in_python(name: str, job_name: str, given: Given) -> Contender:
    """A peer in Python, from its own environment."""

    def run(scale: Scale, work: Path) -> dict[str, float]:
        return peer_process.run(_python(name), {"job": job_name, "work": str(work), **given(scale, work)})

    return Contender(name, run, lambda: field_install.python_missing(name))


def in_flink(name: str, job_name: str, given: Given) -> Contender:
    """Flink SQL, or Flink's DataStream in Python, in the environment of both."""
    is_sql = name == peers.FLINK
    script = "flink_sql_job" if is_sql else "flink_stream_job"

    def run(scale: Scale, work: Path) -> dict[str, float]:
        told = {"job": job_name, "work": str(work), **given(scale, work)}
        return peer_process.run(peers.flink_command(script), told)

    return Contender(name, run, peers.flink_missing, little=not is_sql)


def in_java(name: str, job_name: str, given: Given) -> Contender:
    """A peer in Java, whose jars and compiled job are kept beside the environments."""

    def run(scale: Scale, work: Path) -> dict[str, float]:
        told = {"job": job_name, "work": str(work), **given(scale, work)}
        return peer_process.run(field_install.java_command(name), told)

    return Contender(name, run, lambda: field_install.java_missing(name))


def between_topics(
    name: str, package: str, job_name: str, given: Given, *, little: bool = False
) -> Contender:
    """A peer from topics to a topic, as it is `given`; the CPU seconds of the broker are told apart."""
    in_java = package in field_install.SHARED

    def run(scale: Scale, work: Path) -> dict[str, float]:
        command = field_install.java_command(package) if in_java else _python(package)
        told = {"job": job_name, "work": str(work), **given(scale, work)}
        return peer_process.run(command, told, field_topics.process())

    def missing() -> str | None:
        install = field_install.java_missing if in_java else field_install.python_missing
        return install(package) or field_topics.missing()

    return Contender(name, run, missing, little=little)


def on_kafka(name: str, job_name: str, given: Given, data_of: DataOf) -> Contender:
    """A peer that reads and writes Kafka alone does a job whose data are files."""

    def with_topics(scale: Scale, work: Path) -> dict[str, Any]:
        return {**given(scale, work), **field_topics.given(*data_of(scale), work)}

    package = "kafka_streams" if name == KAFKA_STREAMS else "quixstreams"
    peer = between_topics(name, package, job_name, with_topics, little=name == QUIX)

    def run(scale: Scale, work: Path) -> dict[str, float]:
        figures = peer.run(scale, work)
        field_topics.collect(work)
        return figures

    return replace(peer, run=run)


def _python(package: str) -> list[str]:
    return [str(field_install.python_of(package)), str(SCRIPTS / f"{package}_job.py")]


def _per_million(contender: Contender, usual: Job) -> Contender:
    def run(scale: Scale, work: Path) -> dict[str, float]:
        figures: Mapping[str, float] = contender.run(scale, work)
        return {**figures, "cpu_per_million_s": figures["cpu_s"] / usual.units(scale) * 1e6}

    return replace(contender, run=run, reference=False)
