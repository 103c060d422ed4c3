"""From command to first result, and memory: `drivetrain run` beside a plain PySpark script, for 1 MB of text.

All of it counts: Python, imports, the Java process, the session, the first batch. The first result is the
first complete file in the output directory; memory is the largest sum of the resident sets of all processes.

    python -m benchmarks.startup [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import data, peer_process, peers
from benchmarks.measure import OURS, Contender, Job, MemoryWatch, Scale, main
from benchmarks.results import expect_equal, read_output

MEGABYTES = 1
ROOT = Path(__file__).resolve().parent.parent


def watched(command: list[str], out: Path) -> dict[str, float]:
    """Run a command and watch for its first output file."""
    began_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    watch = MemoryWatch(process.pid)
    watch.start()
    first_s: float | None = None
    while process.poll() is None:
        if first_s is None and has_result(out):
            first_s = time.perf_counter() - began_s
        time.sleep(0.01)
    total_s = time.perf_counter() - began_s
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return {"first_s": first_s or total_s, "seconds": total_s, **watch.finish()}


def has_result(out: Path) -> bool:
    """Whether a reader of `out` sees a file: not a hidden one, not one that is being written."""
    try:
        return any(p.suffix == ".parquet" and p.name[0] not in "._" for p in out.iterdir())
    except FileNotFoundError:
        return False


def run_drivetrain(_scale: Scale, work: Path) -> dict[str, float]:
    lines, out = data.text(MEGABYTES) / "lines", work / "out"
    sets = [f"input={lines}", f"output={out}", f"state.dir={work / 'state'}"]
    command = [sys.executable, "-m", "drivetrain.cli", "run", str(ROOT / "examples" / "wordcount.py")]
    return watched([*command, *(part for each in sets for part in ("--set", each))], out)


def run_pyspark(name: str, _scale: Scale, work: Path) -> dict[str, float]:
    settings = [f"spark.sql.shuffle.partitions={peer_process.cores()}"] if name == peers.TUNED else []
    out = work / "out"
    script = str(Path(__file__).with_name("startup_script.py"))
    given = [str(data.text(MEGABYTES) / "lines"), str(out), str(work / "checkpoint")]
    return watched([sys.executable, script, *given, *settings], out)


def check(_scale: Scale, work: Path) -> None:
    expected = pq.read_table(data.text(MEGABYTES) / "expected.parquet")
    expect_equal(read_output(work / "out", expected.column_names), expected, ["word"])


JOB = Job(
    name="startup",
    title="From command to first result",
    unit="s to first result",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work)),
        Contender(
            peers.DEFAULTS, lambda scale, work: run_pyspark(peers.DEFAULTS, scale, work), reference=True
        ),
    ),
    prepare=lambda _scale: data.text(MEGABYTES),
    units=lambda _scale: data.total(data.text(MEGABYTES), "count"),
    check=check,
    measure="first_s",
    lower_is_better=True,
    columns=(("seconds", "s to the end"), ("peak_mib", "peak memory, MiB")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
