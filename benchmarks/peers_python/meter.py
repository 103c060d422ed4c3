"""How a peer's process tells the benchmark when its job begins and ends: nothing of ours is importable here.

It prints `begin` and `end`, each on a line of its own, and waits for an answer, so that the benchmark reads
the CPU seconds of the whole process tree at these moments from outside.

Called by the jobs beside it. `Meter.java` does the same.
"""

import json
import sys
from contextlib import contextmanager


def given():
    """The job's arguments."""
    return json.loads(sys.argv[1])


def for_warm_up(job):
    """Those arguments of a job that its warm-up has instead."""
    return {key.removeprefix("warm_"): value for key, value in job.items() if key.startswith("warm_")}


@contextmanager
def measured():
    """Measure what happens within."""
    _tell("begin")
    yield
    _tell("end")


def _tell(what):
    print(f"\n{what}", flush=True)
    sys.stdin.readline()
