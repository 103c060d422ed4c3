"""What was done up to each result of a query, in the thread of its batches: see `change_counts`.

In a module of its own, because a function counts as changed if what it uses of its own module has changed.

Called by `change_counts`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.java_calls import JavaCalls

if TYPE_CHECKING:
    from drivetrain import RunningApplication

WAIT_S = 300
COLUMNS = ("ms", "calls", "jobs", "fsyncs", "python, ms", "java, ms", "compiling, ms")


@dataclass
class Results:
    """What was counted up to each result, with the version of the graph that it is of."""

    calls: JavaCalls
    seen: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    fsyncs: Counter[int] = field(default_factory=Counter)

    def note(self, version: int) -> None:
        """A result comes out, in the thread of the batches."""
        from pyspark.sql import SparkSession

        spark: Any = SparkSession._instantiatedSession
        with self.calls.uncounted():
            jobs = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
            generator = spark._jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator
            compiling_ms, of_java = generator.compileTime() / 1e6, spark._jvm.java.lang.ProcessHandle
            cpu_ms = _cpu_ms(of_java.current().pid())
        now = (time.perf_counter() * 1000, self.calls.of_thread(), jobs, self.fsyncs[threading.get_ident()])
        self.seen.append((version, (*now, time.thread_time() * 1000, cpu_ms, compiling_ms)))

    def wait_for_more(self, results: int, running: RunningApplication) -> None:
        """Wait for that many from now on; raises the run's error."""
        wanted, deadline_s = len(self.seen) + results, time.perf_counter() + WAIT_S
        while len(self.seen) < wanted:
            if not running.is_running:
                running.wait()
            if time.perf_counter() > deadline_s:
                raise TimeoutError("no result came out")
            time.sleep(0.005)

    def between(self, at: int) -> tuple[float, ...]:
        """What was counted from the result before to result `at`."""
        return tuple(b - a for a, b in zip(self.seen[at - 1][1], self.seen[at][1], strict=True))

    def count_fsyncs(self) -> None:
        """From now on, count those of each thread."""
        given = os.fsync

        def counting(file: Any) -> None:
            self.fsyncs[threading.get_ident()] += 1
            given(file)

        os.fsync = counting


def _cpu_ms(pid: int) -> float:
    """The CPU time of a process: Linux has a clock of each, whose number follows from its id."""
    return time.clock_gettime((~pid << 3) | 2) * 1000


RESULTS = Results(JavaCalls())
