"""Checkpoints on a local disk: with a file system that sets permissions itself, and with Hadoop's.

Two windows in a row over generated messages, in small batches, so that most files are those of checkpoints.
Both contenders run the same application with the same Java and the same class path; they differ in
`fs.file.impl`. The first, small run of each is not measured. Needs `drivetrain warm-up`.

    python -m benchmarks.local_files [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import OURS, Contender, Job, Scale, Timed, WrongResultError, main

if TYPE_CHECKING:
    from drivetrain.config import Config

HADOOP = "Hadoop's file system"
ROWS_A_BATCH = 500
WORDS = 8


def batches(scale: Scale) -> int:
    """Batches of the first window's query."""
    return 6 if scale.quick else 40


def configured(work: Path, name: str) -> Config:
    from drivetrain.config import Config
    from drivetrain.spark.session import local_files

    jar = local_files.usable_jar()
    if jar is None:
        raise SystemExit("run `drivetrain warm-up` first: it makes what is measured here")
    sets = {
        "state.dir": str(work / "state"),
        "run.max-batch-rows": str(ROWS_A_BATCH),
        "spark.master": "local[2]",
    }
    if name == HADOOP:
        sets["spark.conf.spark.driver.extraClassPath"] = str(jar)
        sets["spark.conf.spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.LocalFileSystem"
    return Config.load(None, {}, sets)


def counted(name: str, work: Path, config: Config, rows: int) -> None:
    """Count words by minute, then by hour. Raises `WrongResultError`."""
    import pyarrow.dataset as ds

    from drivetrain import Application, agg, sinks, sources, windows
    from drivetrain.spark.entry_points import run

    app = Application(name)
    source = sources.generate(rows=rows, every="1 s", columns={"word": f"cast(id % {WORDS} as string)"})
    minutes = app.read(source).group_by("word").window(windows.tumbling("1 min")).aggregate(n=agg.count())
    hours = minutes.group_by("word").window(windows.tumbling("1 h")).aggregate(step="hours", n=agg.sum("n"))
    hours.sink(sinks.parquet(work / name))
    run(app, config).check()
    files = sorted(map(str, (work / name).glob("*.parquet")))
    found = sum(ds.dataset(files).to_table().column("n").to_pylist())
    if found != rows:
        raise WrongResultError(f"{found} messages counted of {rows}")


def run_with(name: str, scale: Scale, work: Path) -> dict[str, float]:
    config = configured(work, name)
    counted("first", work, config, 2 * ROWS_A_BATCH)
    with Timed() as timed:
        counted("counted", work, config, batches(scale) * ROWS_A_BATCH)
    return timed.figures(cpu_ms_a_batch=1000 * timed.cpu_s / batches(scale))


JOB = Job(
    name="local_files",
    title="Files of checkpoints on a local disk",
    unit="CPU seconds",
    contenders=(
        Contender(OURS, lambda scale, work: run_with(OURS, scale, work)),
        Contender(HADOOP, lambda scale, work: run_with(HADOOP, scale, work)),
    ),
    prepare=lambda _scale: None,
    units=batches,
    check=lambda _scale, _work: None,  # each run checks its own result
    measure="cpu_s",
    lower_is_better=True,
    columns=(("seconds", "seconds"), ("cpu_ms_a_batch", "CPU a batch, ms")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
