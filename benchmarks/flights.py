"""The example `examples/flights.py`, from command to end: a year of departures, four windows, a picture.

python -m benchmarks.flights [--quick] [--json] [--rounds N]
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main
from benchmarks.results import read_output

FLIGHTS = 336_776
ROOT = Path(__file__).resolve().parent.parent


def run_drivetrain(_scale: Scale, work: Path) -> dict[str, float]:
    sets = [f"data={work / 'data'}", f"output={work / 'out'}", f"state.dir={work / 'state'}"]
    command = [sys.executable, "-m", "drivetrain.cli", "run", str(ROOT / "examples" / "flights.py")]
    began_s = time.perf_counter()
    subprocess.run(
        [*command, *(part for each in sets for part in ("--set", each))], stdout=sys.stderr, check=True
    )
    return {"seconds": time.perf_counter() - began_s}


def check(_scale: Scale, work: Path) -> None:
    counted = pc.sum(read_output(work / "out" / "airports", [])["flights"]).as_py()
    if counted != FLIGHTS:
        raise WrongResultError(f"{counted:,} flights in the windows instead of {FLIGHTS:,}")


JOB = Job(
    name="flights",
    title="The flights example, from command to end",
    unit="s",
    contenders=(Contender(OURS, run_drivetrain),),
    prepare=lambda _scale: None,
    units=lambda _scale: FLIGHTS,
    check=check,
    measure="seconds",
    lower_is_better=True,
    columns=(("per_s", "flights/s"), ("peak_mib", "peak memory, MiB")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
