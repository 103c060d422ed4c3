"""Measures contenders at one job, each run in a process of its own, and compares what they wrote.

A contender runs in a fresh process (and a fresh JVM): it starts its engine, does the job once on little data
to warm up, then once on the real data, which is timed from the first call of its API to the last byte of
output. The process tree is watched from outside for its memory. Contenders take turns within a round, so
that a change in the machine's load hits all of them; figures are medians over rounds. Contenders marked as
`reference` (the slow ones) run in fewer rounds. Jobs that grow are also done on more data and beside a busy
process, which `cost` turns into CPU seconds: fixed ones, and those of a million units.

Every run's output is checked against what is known of the data, so all contenders did the same job.

Each job is a module with a `JOB`; `main(JOB)` makes it a command: `python -m benchmarks.wordcount --quick`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks import cost, data

SAMPLE_S = 0.2
TIMEOUT_S = 900
COLUMNS = (("seconds", "seconds"), ("start_s", "session start, s"), ("peak_mib", "peak memory, MiB"))
OURS = "drivetrain"


class WrongResultError(RuntimeError):
    """A contender's output is not what the data says."""


@dataclass(frozen=True)
class Scale:
    """How large a run is: `times` the data of the job, or little."""

    quick: bool
    times: int = 1


@dataclass(frozen=True)
class Contender:
    """One way to do a job.

    `run(scale, work)` does it in this very process, writes below `work`, and returns its figures
    (`seconds` at least). `missing()` says why it cannot run here, or None. `little` data is what a contender
    gets that would take too long for the usual data.
    """

    name: str
    run: Callable[[Scale, Path], dict[str, float]]
    missing: Callable[[], str | None] = lambda: None
    reference: bool = False
    little: bool = False


@dataclass(frozen=True)
class Job:
    """What is measured: `units(scale)` of it are done; `check(scale, work)` raises `WrongResultError`.

    `measure` is the figure that contenders are compared by, in `unit`; `per_s` is derived from `seconds`.
    `goals` are the ratios of ours over a contender that we want to reach, keyed by contender.
    """

    name: str
    title: str
    unit: str
    contenders: tuple[Contender, ...]
    prepare: Callable[[Scale], Any]
    units: Callable[[Scale], int]
    check: Callable[[Scale, Path], None]
    measure: str = "per_s"
    lower_is_better: bool = False
    goals: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = COLUMNS
    grows: bool = False
    """Whether `scale.times` is heeded, so that fixed costs and those of a unit can be told apart."""


# -- in the contender's process --------------------------------------------------------------------


class Timed:
    """Wall-clock and CPU seconds of a block, the CPU over this process and all its descendants."""

    def __enter__(self) -> Timed:
        self._before_s = cpu_s()
        self._began_s = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began_s
        self.cpu_s = cpu_s() - self._before_s

    def figures(self, **others: float) -> dict[str, float]:
        """What a contender returns."""
        return {"seconds": self.seconds, "cpu_s": self.cpu_s, **others}


def cpu_s() -> float:
    """CPU seconds of this process and all its descendants so far."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


# -- outside ---------------------------------------------------------------------------------------


class MemoryWatch(threading.Thread):
    """Samples the memory of a process and its descendants; `peak_mib` is the largest sum.

    Pages that several processes share, such as forked Python workers, are counted once (Linux only: elsewhere
    they are counted for each).
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._done = threading.Event()
        self.peak_mib = 0.0

    def run(self) -> None:
        while not self._done.wait(SAMPLE_S):
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            total = 0
            for process in tree:
                try:
                    if _is_copy_of_java(process):
                        continue
                    memory = process.memory_full_info()
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                total += getattr(memory, "pss", memory.rss)
            self.peak_mib = max(self.peak_mib, total / 2**20)

    def finish(self) -> dict[str, float]:
        """Stop watching; the peak in MiB, as a figure."""
        self._done.set()
        self.join()
        return {"peak_mib": self.peak_mib}


def _is_copy_of_java(process: psutil.Process) -> bool:
    """Whether Java is about to start a program here: until then that process has the very memory of Java."""
    if Path(process.exe()).name != "java":
        return False
    parent = process.parent()
    return parent is not None and parent.exe() == process.exe()


def run_watched(command: list[str], log: Path, cwd: Path | None = None) -> tuple[str, dict[str, float]]:
    """Run a command; its standard output, and as figures the seconds it took and its peak memory."""
    began_s = time.perf_counter()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=cwd, env=_environment(log.parent)
        )
        watch = MemoryWatch(process.pid)
        watch.start()
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
        finally:
            peaks = watch.finish()
    seconds = time.perf_counter() - began_s
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{_tail(log)}")
    return output, {"process_s": seconds, **peaks}


def measure_apart(job: Job, contender: Contender, scale: Scale) -> dict[str, float]:
    """One run of a contender in a process of its own, its output checked."""
    scale = Scale(scale.quick or contender.little, scale.times)
    work = Path(tempfile.mkdtemp(prefix=f"work-{job.name}-", dir=data.root()))
    try:
        module = f"benchmarks.{job.name}"
        command = [sys.executable, "-m", module, "--contender", contender.name, "--work", str(work)]
        command += ["--times", str(scale.times), *(["--quick"] if scale.quick else [])]
        output, outside = run_watched(command, work / "stderr.txt")
        figures: dict[str, float] = json.loads(output.strip().splitlines()[-1])
        job.check(scale, work)
        figures = {**outside, **figures, "units": job.units(scale)}
        if "seconds" in figures:
            figures["per_s"] = job.units(scale) / figures["seconds"]
        return figures
    finally:
        shutil.rmtree(work, ignore_errors=True)


def costs(job: Job, contender: Contender, scale: Scale, once: Mapping[str, float]) -> dict[str, float]:
    """What the job costs on more data, and beside a busy process, as figures."""
    grown = Scale(scale.quick, scale.times * cost.GROWN)
    job.prepare(grown)  # or the first contender would make the data, as part of its costs
    more = measure_apart(job, contender, grown)
    with cost.busy_process():
        beside = measure_apart(job, contender, scale)
    apart = cost.apart(once["cpu_s"], more["cpu_s"], job.units(scale), job.units(grown))
    return {**apart, "grown_s": more["seconds"], "busy_s": beside["seconds"]}


def run_job(
    job: Job,
    scale: Scale,
    rounds: int = 3,
    reference_rounds: int = 1,
    only: list[str] | None = None,
    say: Callable[[str], None] = lambda _line: None,
    brief: bool = False,
) -> dict[str, Any]:
    """Measure every contender that is there, in turn within each round; goes on when one fails.

    If `brief`, jobs that grow are done on the usual data only.
    """
    data.root().mkdir(parents=True, exist_ok=True)
    job.prepare(scale)
    taking_part = [c for c in job.contenders if not only or c.name in only]
    skipped: dict[str, str] = {}
    for contender in taking_part:
        reason = contender.missing()
        if reason is not None:
            skipped[contender.name] = reason
    runs: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for contender in taking_part:
            if contender.name in skipped or (contender.reference and number >= reference_rounds):
                continue
            try:
                figures = measure_apart(job, contender, scale)
                if job.grows and not contender.reference and not brief:
                    figures |= costs(job, contender, scale, figures)
            except Exception as error:  # noqa: BLE001 - one contender's failure must not lose the others' figures
                skipped[contender.name] = f"{type(error).__name__}: {error}"
                runs.pop(contender.name, None)
                say(f"{contender.name}: {skipped[contender.name]}")
                continue
            runs.setdefault(contender.name, []).append(figures)
            say(f"round {number + 1}: {contender.name}: {figures[job.measure]:,.0f} {job.unit}")
    return summary(job, scale, runs, skipped)


def summary(
    job: Job, scale: Scale, runs: Mapping[str, list[dict[str, float]]], skipped: Mapping[str, str]
) -> dict[str, Any]:
    """The medians of all runs and the ratios of ours over each peer (above 1: ours is better)."""
    medians = {name: _medians(figures) for name, figures in runs.items()}
    ratios: dict[str, float] = {}
    for name, figures in medians.items():
        if OURS not in medians or name == OURS:
            continue
        ours, theirs = medians[OURS][job.measure], figures[job.measure]
        ratios[name] = theirs / ours if job.lower_is_better else ours / theirs
    return {
        "job": job.name,
        "title": job.title,
        "quick": scale.quick,
        "units": job.units(scale),
        "unit": job.unit,
        "measure": job.measure,
        "lower_is_better": job.lower_is_better,
        "columns": [list(column) for column in (*job.columns, *(cost.COLUMNS if job.grows else ()))],
        "rounds": {name: len(figures) for name, figures in runs.items()},
        "median": medians,
        "runs": dict(runs),
        "ours_over": ratios,
        "goals": dict(job.goals),
        "cpu_over": cost.over(medians, OURS),
        "skipped": dict(skipped),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    import pyspark

    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "drivetrain": importlib.metadata.version("drivetrain"),
        "spark": pyspark.__version__,
        "load_before": round(os.getloadavg()[0], 1),
    }


def _medians(figures: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in figures if key in run) for key in figures[0]}


def _environment(work: Path) -> dict[str, str]:
    directory = work / "tmp"
    directory.mkdir(exist_ok=True)
    return {**os.environ, "SPARK_LOCAL_DIRS": str(directory), "TMPDIR": str(directory)}


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-25:])


# -- as a command ----------------------------------------------------------------------------------


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that all jobs share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little data, one round: is everything there?")
    parser.add_argument("--brief", action="store_true", help="one round, only on the usual data")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--rounds", type=int, help="runs of each contender (3; with --quick or --brief 1)")
    parser.add_argument("--reference-rounds", type=int, default=1, help="runs of the slow peers")
    parser.add_argument("--only", action="append", metavar="CONTENDER", help="measure only these")
    return parser


def main(job: Job, description: str | None = None) -> int:
    """Run one job from the command line, or, as `--contender`, one measurement of it."""
    from benchmarks.report import as_text

    parser = arguments(description)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, default=1, help="how many times the usual data (1)")
    given = parser.parse_args()
    scale = Scale(given.quick, given.times)
    if given.contender:
        contender = next(c for c in job.contenders if c.name == given.contender)
        print("\n" + json.dumps(contender.run(scale, given.work)), flush=True)
        return 0
    rounds = given.rounds or (1 if given.quick or given.brief else 3)
    result = run_job(job, scale, rounds, given.reference_rounds, given.only, _say, given.brief)
    print(json.dumps(result) if given.json else as_text(result))
    return 0 if OURS in result["median"] else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


__all__ = ["OURS", "Contender", "Job", "Scale", "Timed", "WrongResultError", "cpu_s", "main", "run_job"]
