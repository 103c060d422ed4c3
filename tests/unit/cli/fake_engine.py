"""An engine that only reports events, so that commands can be tested without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from drivetrain.api import Application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import (
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    OutputResult,
    ProcessorResult,
    RunListener,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.runtime.graph_versions import KeptVersion

RESULT = RunResult(
    application="count",
    outcome=RunOutcome.FINISHED,
    duration_ms=2500,
    processors=(
        ProcessorResult("lines", 1_000, 1_000, is_source=True),
        ProcessorResult("counts", 1_000, 37, late=4, dead_lettered=2),
    ),
    outputs=(OutputResult("out", "parquet out/", 37, "exactly once"),),
    batches=3,
    clock_ms=1_357_016_400_000,
)


@dataclass
class FakeEngine:
    """Reports one run's events; `during` is called in the middle of the run, and its error is the run's."""

    result: RunResult = RESULT
    during: Callable[[RunListener], None] = lambda listener: None
    calls: list[tuple[Application, Config, bool]] = field(default_factory=list)
    replays: list[int | None] = field(default_factory=list)
    savepoints: list[str | None] = field(default_factory=list)
    versions: list[KeptVersion | None] = field(default_factory=list)

    def __call__(
        self,
        application: Application,
        config: Config,
        listener: RunListener,
        *,
        fresh: bool,
        replay_from_ms: int | None,
        savepoint: str | None,
        version: KeptVersion | None,
    ) -> RunResult:
        self.calls.append((application, config, fresh))
        self.replays.append(replay_from_ms)
        self.savepoints.append(savepoint)
        self.versions.append(version)
        listener.on_event(RunStarted(application.name, ("counts",)))
        listener.on_event(FragmentStateChanged("counts", FragmentState.RUNNING))
        listener.on_event(FragmentProgressed("counts", 0, 500, 200.0, 120, 500, 1_357_016_400_000))
        listener.on_event(InputProgressed(0.5))
        listener.on_event(NoticeGiven("half of it"))
        self.during(listener)
        listener.on_event(FragmentStateChanged("counts", FragmentState.FINISHED))
        return self.result
