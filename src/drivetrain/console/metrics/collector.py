"""Converts the cluster's status to metrics when they are requested; it keeps no figures of its own, except
those of `counters`.

Problem: a monitoring system asks every few seconds; an application master that does not answer must not delay
the figures of the others.

Design: one look at the masters and at every application that runs, a few at a time and each with a timeout;
then the families are filled, and prometheus-client writes them. One metric shows whether the console reaches
a leader.

Invariants:

1. Label values are names of applications, fragments, channels, processors and processes, as text.
2. A counter never falls while its application is there; see `counters`.

Called by `console.handlers.metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as PLAIN_TYPE
from prometheus_client.exposition import generate_latest as plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.registry import Collector

from drivetrain.cluster.client import Client
from drivetrain.cluster.client.cluster_situation import situation_of
from drivetrain.cluster.messages import applications as messages
from drivetrain.cluster.messages.following import FragmentView, JobStatus
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.metrics import families as f
from drivetrain.console.metrics.counters import Counters
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.finding import Severity
from drivetrain.core.job.fragment_figures import FragmentFigures
from drivetrain.core.job.history import History
from drivetrain.errors import DrivetrainError


@dataclass(frozen=True)
class Format:
    """A way to write metrics as text."""

    media_type: str
    written: Callable[[CollectorRegistry], bytes]


OPEN_METRICS: Final = Format(OPEN_METRICS_TYPE, open_metrics)
PLAIN: Final = Format(PLAIN_TYPE, plain)
"""What programs read that do not know OpenMetrics."""
_AT_ONCE: Final = 16


@dataclass
class _Poll:
    """What one look has found."""

    connected: bool
    masters: Sequence[messages.MasterView] = ()
    workers: Sequence[messages.WorkerView] = ()
    lines: Sequence[messages.ApplicationSummary] = ()
    running: list[tuple[messages.ApplicationView, JobStatus | None, History]] = field(default_factory=list)


class Metrics:
    """The metrics of the cluster of `client`."""

    def __init__(self, client: Client | EmbeddedRuns) -> None:
        self._client: Final = client
        self._counters: Final = Counters()
        self._looking: Final = asyncio.Lock()

    async def text(self, format: Format) -> bytes:
        """The metrics now; concurrent calls run one after the other."""
        async with self._looking:
            seen = await self._look()
            registry = CollectorRegistry()
            registry.register(_Writer(seen, self._counters))
            return format.written(registry)

    async def _look(self) -> _Poll:
        try:
            masters = await self._client.masters()
        except DrivetrainError:
            return _Poll(connected=False)
        try:
            workers, lines = await asyncio.gather(self._client.workers(), self._client.applications())
        except DrivetrainError:
            return _Poll(connected=False, masters=masters)
        places = asyncio.Semaphore(_AT_ONCE)

        async def look(app_id: str) -> tuple[messages.ApplicationView, JobStatus | None, History] | None:
            async with places:
                try:
                    view = await self._client.application(app_id)
                    client = self._client
                    return view, *await asyncio.gather(client.job_status(view), client.history(view))
                except DrivetrainError:
                    return None

        alive = [line.app_id for line in lines if not line.state.is_over]
        found = await asyncio.gather(*map(look, alive))
        return _Poll(True, masters, workers, lines, [each for each in found if each is not None])


class _Writer(Collector):
    """Fills the families from one look."""

    def __init__(self, seen: _Poll, counters: Counters) -> None:
        self._seen: Final = seen
        self._counters: Final = counters
        self._made: Final[dict[str, GaugeMetricFamily | CounterMetricFamily]] = {
            family.name: (GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily)(
                family.name, family.help, labels=family.labels
            )
            for family in f.FAMILIES
        }

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """All families."""
        self._cluster()
        for view, status, history in self._seen.running:
            self._application(view, status, history)
        if self._seen.connected:
            # Also those that did not answer this look: their counters continue with the next one.
            self._counters.keep(line.app_id for line in self._seen.lines if not line.state.is_over)
        yield from self._made.values()

    def _put(self, family: f.Family, value: float | None, *labels: str) -> None:
        if value is None:
            return
        if family.kind == "counter":
            value = self._total(family, int(value), labels)
        self._made[family.name].add_metric(labels, value)

    def _put_ms(self, family: f.Family, ms: int, *labels: str) -> None:
        """A counter of seconds; it is added up in ms."""
        self._made[family.name].add_metric(labels, self._total(family, ms, labels) / 1000)

    def _total(self, family: f.Family, counted: int, labels: tuple[str, ...]) -> int:
        return self._counters.total(labels[0], (family.name, *labels[1:]), counted)

    def _cluster(self) -> None:
        seen = self._seen
        self._put(f.CONNECTED, seen.connected)
        for master in seen.masters:
            self._put(f.LEADING, master.leads, master.address)
        if seen.masters:
            self._put(f.MASTERS, len(seen.masters))
            self._put(f.TERM, max(master.term for master in seen.masters))
        if not seen.connected:
            return
        self._put(f.WORKERS, len(seen.workers))
        for worker in seen.workers:
            self._put(f.SLOTS, worker.slots, worker.name)
            self._put(f.FREE, worker.free, worker.name)
            self._put(f.CPU, worker.cpu, worker.name)
            self._put(f.MEMORY, worker.memory_free, worker.name)
        for state in messages.ApplicationState:
            self._put(f.APPLICATIONS, sum(line.state is state for line in seen.lines), state.value)

    def _application(
        self, view: messages.ApplicationView, status: JobStatus | None, history: History
    ) -> None:
        app = view.app_id
        self._put(f.UP, status is not None, app)
        self._put(f.EPOCHS, view.epoch, app)
        seen = self._seen
        findings = diagnose(situation_of(view, status, seen.workers, seen.masters, history))
        for severity in Severity:
            count = sum(finding.severity is severity for finding in findings)
            self._put(f.FINDINGS, count, app, severity.name.lower())
        if status is None:
            return
        self._put(f.CLOCK, _seconds(status.clock_ms), app)
        self._put(f.SKIPPED, status.skipped, app)
        self._put(f.LOST, status.lost, app)
        self._put(f.FRACTION, status.fraction, app)
        for fragment in status.fragments:
            self._fragment(app, fragment)
            for channel in fragment.channels:
                self._channel(app, channel)
        for processor, (taken, given, late, dead) in status.counts.items():
            for family, count in ((f.IN, taken), (f.OUT, given), (f.LATE, late), (f.DEAD, dead)):
                self._put(family, count, app, processor)
        if status.checkpoints is not None:
            self._checkpoints(app, status.checkpoints, status.checkpoints_now_ms)

    def _fragment(self, app: str, view: FragmentView) -> None:
        name = view.fragment
        self._put(f.RUNNING, view.state == "running", app, name)
        self._put(f.STARTS, view.attempt, app, name)
        self._put(f.MESSAGES, view.rows_total, app, name)
        self._put(f.RATE, view.rows_per_s, app, name)
        self._put(f.BATCH, _seconds(view.batch_ms), app, name)
        self._put(f.LAG, view.lag_rows, app, name)
        self._put(f.DELAY, _seconds(view.watermark_delay_ms), app, name)
        self._put(f.STALLED, _seconds(view.stalled_ms), app, name)
        self._put(f.SILENT, len(view.figures.silent_partitions), app, name)
        self._figures(app, name, view.figures)

    def _figures(self, app: str, fragment: str, figures: FragmentFigures) -> None:
        labels, counters = (app, fragment), figures.counters
        self._put(f.STATE_ROWS, figures.state_rows, *labels)
        self._put(f.STATE_BYTES, figures.state_bytes, *labels)
        for percentile, ms in (("50", figures.latency_p50_ms), ("99", figures.latency_p99_ms)):
            self._put(f.LATENCY, _seconds(ms), *labels, percentile)
        self._put(f.BATCHES, counters.batches, *labels)
        for name in counters.phases.__struct_fields__:
            self._put_ms(f.PHASES, getattr(counters.phases, name), *labels, name.removesuffix("_ms"))
        self._put_ms(f.PYTHON, counters.python_ms, *labels)
        self._put_ms(f.STATE_TIME, counters.state_ms, *labels)
        self._put_ms(f.ALIGNING, counters.aligning_ms, *labels)
        for channel, ms in counters.blocked_ms.items():
            self._put_ms(f.WAITED, ms, *labels, channel)

    def _channel(self, app: str, view: ChannelProgress) -> None:
        labels = (app, view.channel, view.producer, view.subscriber)
        self._put(f.CHANNEL_LAG, view.lag_rows, *labels)
        self._put(f.CHANNEL_LAG_BYTES, view.lag_bytes, *labels)
        self._put(f.CHANNEL_LAG_TIME, _seconds(view.lag_ms), *labels)
        self._put(f.KEPT, view.kept_bytes, *labels)
        self._put(f.BLOCKED, _seconds(view.blocked_ms), *labels)
        self._put(f.LOSSES, view.losses, *labels)
        self._put(f.REPAIRS, view.replays, *labels)

    def _checkpoints(self, app: str, figures: CheckpointFigures, now_ms: int) -> None:
        self._put(f.CHECKPOINTS, figures.completed, app)
        self._put(f.CHECKPOINTS_FAILED, figures.failed, app)
        if figures.last is not None:
            self._put(f.CHECKPOINT_AGE, _seconds(max(0, now_ms - figures.last.started_ms)), app)
            self._put(f.CHECKPOINT_TIME, _seconds(figures.last.duration_ms), app)
            self._put(f.CHECKPOINT_BYTES, figures.last.bytes, app)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
