"""What a cluster costs, and how long it takes to get over the death of any of its processes.

A real cluster on this machine (three masters, two workers) runs an application that writes a file per batch.
Each process in turn is killed with SIGKILL; the time counts until a new file is there (for the leading
master: until another answers, and the longest time without a new file meanwhile). Java's start, and Spark's,
are part of it. The same application also runs embedded: from the command to its first file, beside
`drivetrain submit` to a cluster that runs already. Memory is the resident set of each control process at the
end.

    python -m benchmarks.cluster [--quick] [--spares 0] [--json]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "integration" / "cluster"))

from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster

APPLICATION = Path(__file__).with_name("cluster_application.py")
GOALS = {
    "the leading master dies: another answers": 5.0,
    "an executor dies: processing again": 5.0,
    "the application master dies: processing again": 8.0,
    "submit to first message, beyond embedded": 2.0,
}
CONTROL_MIB = 80
SETTLED_S = 5.0
SPARE_S = 25.0
PATIENCE_S = 180.0


def main() -> int:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one death of each kind instead of three")
    parser.add_argument("--spares", type=int, default=1, help="spare executors of each worker (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="drivetrain-bench-cluster-"))
    try:
        figures, memory = measured(work, rounds=1 if options.quick else 3, spares=options.spares)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.json:
        print(json.dumps({"seconds": figures, "memory_mib": memory}, indent=2))
        return 0
    for name, values in figures.items():
        goal = f"goal {GOALS[name]:g}" if name in GOALS else ""
        print(f"{name:52} {statistics.median(values):6.1f} s   of {len(values)}   {goal}".rstrip())
    for name, mib in memory.items():
        print(f"{'memory of ' + name:52} {mib:6.0f} MiB        goal {CONTROL_MIB}")
    return 0


def measured(work: Path, rounds: int, spares: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """All figures by what they are: seconds, and MiB of control processes."""
    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)

    for number in range(rounds):
        note("run (embedded) to first message", first_file_embedded(work / f"embedded-{number}"))
    (work / "cluster").mkdir()
    cluster = WholeCluster(work / "cluster", masters=3, workers=2, spares=spares)
    try:
        cluster.wait_leader()
        if spares:
            time.sleep(SPARE_S)
        for number in range(rounds):
            out = work / "cluster" / f"out-{number}"
            began_s = time.monotonic()
            name = f"steady{number}"
            submit = ("submit", str(APPLICATION), "--name", name, "--detached", "--set", f"output={out}")
            cluster.command(*submit, expect=0)
            wait(functools.partial(files, out))
            note("submit (cluster) to first message", time.monotonic() - began_s)
            settle(out, spare_too=spares > 0)
            note_leader(cluster, out, note)
            settle(out)
            for kind, victim in ((EXECUTOR, "an executor"), (APP_MASTER, "the application master")):
                note(f"{victim} dies: processing again", after_death(cluster, name, kind, out))
                settle(out, spare_too=spares > 0)
            if number < rounds - 1:
                cluster.client.kill(name)
                cluster.client.wait_gone(name, "1 min")
                time.sleep(SPARE_S if spares else 0)
        embedded = statistics.median(found["run (embedded) to first message"])
        for seconds in found["submit (cluster) to first message"]:
            note("submit to first message, beyond embedded", seconds - embedded)
        memory = {
            name: max(psutil.Process(pid).memory_info().rss / 2**20 for pid in pids)
            for name, pids in control_processes(cluster).items()
        }
    finally:
        cluster.close()
    return found, memory


def first_file_embedded(work: Path) -> float:
    """Seconds from `drivetrain run` to the first file."""
    work.mkdir()
    command = [
        sys.executable,
        "-m",
        "drivetrain.cli",
        "run",
        str(APPLICATION),
        "--set",
        f"output={work / 'out'}",
    ]
    began_s = time.monotonic()
    process = subprocess.Popen(command, cwd=work, stdout=subprocess.DEVNULL)
    try:
        wait(lambda: files(work / "out") or process.poll() is not None)
        if process.returncode is not None:
            raise RuntimeError(f"{' '.join(command)} has ended")
        return time.monotonic() - began_s
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def note_leader(cluster: WholeCluster, out: Path, note: Callable[[str, float], None]) -> None:
    """Kill the leading master; note when another answers, and the longest pause of processing meanwhile."""
    leader = cluster.wait_leader()
    began_s, began_wall_s = time.monotonic(), time.time()
    cluster.kill(leader)
    while True:
        try:
            cluster.client.applications()
            break
        except Exception:  # noqa: BLE001 - none leads yet
            time.sleep(0.02)
    note("the leading master dies: another answers", time.monotonic() - began_s)
    settle(out)
    times = sorted(p.stat().st_mtime for p in files(out))
    since = [t for t in times if t >= began_wall_s - SETTLED_S]
    note("the leading master dies: longest pause of processing", max(gaps(since)))
    note(
        "longest pause of processing without any death",
        max(gaps([t for t in times if t < began_wall_s][-20:])),
    )
    cluster.restart(leader)


def after_death(cluster: WholeCluster, application: str, kind: str, out: Path) -> float:
    """Kill a process of the application; seconds until there is a new file."""
    _, status = cluster.status(application)
    assert status is not None
    executors = {executor.pid for executor in status.executors if executor.pid is not None}
    (victim,) = executors if kind == EXECUTOR else cluster.processes(kind)
    ending = {victim, *executors}  # executors end with their application master
    began_s = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    wait(lambda: not ending & set(cluster.processes()))
    before = len(files(out))
    wait(lambda: len(files(out)) > before)
    return time.monotonic() - began_s


def control_processes(cluster: WholeCluster) -> dict[str, list[int]]:
    """The processes that must stay small, by kind."""
    found = {"an application master": cluster.processes(APP_MASTER)}
    for name, pid in cluster.pids.items():
        found.setdefault(f"a {name.partition('-')[0]}", []).append(pid)
    return found


def settle(out: Path, *, spare_too: bool = False) -> None:
    """Let the application process undisturbed for a while, and a spare executor start as well."""
    before = len(files(out))
    time.sleep(SPARE_S if spare_too else SETTLED_S)
    wait(lambda: len(files(out)) > before)


def files(out: Path) -> list[Path]:
    return list(out.glob("part-*.parquet")) if out.is_dir() else []


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in itertools.pairwise(times)]


def wait(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds; RuntimeError when it never does."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise RuntimeError("waited in vain")
        time.sleep(0.02)


if __name__ == "__main__":
    raise SystemExit(main())
