"""Executors that a worker starts ahead, with Spark running, and gives to the next launches.

Problem: the death of an executor, or of an application master, costs the seconds that Spark takes to start.

Design: after each launch of an executor, and when the worker begins, `worker.spare-executors` processes are
started with Spark's settings of that launch; a launch with the same settings takes one, see
`cluster.executor.spare`. They begin some seconds later, so that the cores belong to the launch first. A spare
that ends by itself is started again after a pause that grows.

Invariants:

1. There are at most `worker.spare-executors` untaken spares, all for the settings wanted last.
2. A spare is given to one launch. Until then it has no keys, no code and no slots.
3. A spare's record is durable before its process is started, like that of a launch.

Called by the launcher, in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from drivetrain.actor import ActorSystem
from drivetrain.cluster.launch_file import Handover, SpareFile
from drivetrain.cluster.worker.launch_records import LaunchRecord, LaunchRecords, record_of
from drivetrain.cluster.worker.launched_process import LaunchedProcess
from drivetrain.cluster.worker.worker_logs import LogWriter, SpareOutput
from drivetrain.config import Config
from drivetrain.config.catalog import application, spark

log: Final = logging.getLogger("drivetrain.worker")

DELAY_S: Final = 10.0
"""How long after a launch a spare is started: the executor has begun its work by then."""
_PAUSES_S: Final = (60.0, 600.0, 3600.0)
_CLOSE_S: Final = 6.0


class Kind(NamedTuple):
    """What launches must have in common to use the same spare: slots, and what is configured of Spark."""

    slots: int
    spark: tuple[tuple[str, str], ...]


def kind_of(config: Mapping[str, str], slots: int) -> Kind | None:
    """The kind of a launch with this configuration; None if its Spark is a cluster's."""
    own = tuple(sorted((name, value) for name, value in config.items() if name.startswith("spark.")))
    known = Config.load(None, None, dict(config))
    if not known[spark.MASTER].startswith("local"):
        return None
    return Kind(slots or known[application.EXECUTOR_SLOTS], own)


class Spare:
    """A process without a launch; `tag` is in its environment, and `work` is its directory."""

    def __init__(self, id: str, kind: Kind, work: Path, tag: str) -> None:
        self.id: Final = id
        self.kind: Final = kind
        self.work: Final = work
        self.tag: Final = tag
        self.output: Final = SpareOutput()
        self.process: LaunchedProcess | None = None
        self.on_end: Callable[[int], None] | None = None

    @property
    def record(self) -> LaunchRecord:
        """Its record as long as it has no launch."""
        return record_of(self.id, self.tag, self.work, self.process)

    def hand_over(
        self, launch_file: Path, secret: str | None, log: LogWriter, on_end: Callable[[int], None]
    ) -> LaunchedProcess:
        """Give this process a launch, whose record is durable; raises OSError when it has just ended.

        `on_end` is called once with its exit status, in the event loop's thread.
        """
        assert self.process is not None
        self.output.go_on_in(log)
        self.process.tell(msgspec.json.encode(Handover(str(launch_file), secret)) + b"\n")
        self.on_end = on_end
        return self.process


class SpareExecutors:
    """At most `count` spares in directories below `work`; `start` starts the process of one with its file."""

    def __init__(
        self,
        system: ActorSystem,
        count: int,
        work: Path,
        records: LaunchRecords,
        tag_of: Callable[[str], str],
        start: Callable[[Spare, Path, Callable[[int], None]], LaunchedProcess],
    ) -> None:
        self._system: Final = system
        self._count: Final = count
        self._work: Final = work
        self._records: Final = records
        self._tag_of: Final = tag_of
        self._start: Final = start
        self._spares: Final[list[Spare]] = []
        self._wanted: tuple[Kind, dict[str, str]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._filling: asyncio.Task[None] | None = None
        self._numbers = 0
        self._failures = 0
        self._is_closed = False

    def want(self, config: Mapping[str, str], slots: int, delay_s: float = DELAY_S) -> None:
        """Have spares for launches like this one from now on; the others are ended."""
        self._want(kind_of(config, slots) if self._count else None, config, delay_s)

    def take(self, config: Mapping[str, str], slots: int) -> Spare | None:
        """A spare for this launch, None if there is none; the next ones are for launches like it."""
        kind = kind_of(config, slots) if self._count else None
        taken = next((each for each in self._spares if each.kind == kind and each.process is not None), None)
        if taken is not None:
            self._spares.remove(taken)
            self._failures = 0
        self._want(kind, config, DELAY_S)
        return taken

    def _want(self, kind: Kind | None, config: Mapping[str, str], delay_s: float) -> None:
        if kind is None or self._is_closed:
            return
        self._wanted = (kind, dict(config))
        for spare in self._spares:
            if spare.kind != kind and spare.process is not None:
                spare.process.kill()
        self._fill_after(delay_s)

    async def close(self) -> None:
        """End all spares that have no launch."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        processes = [spare.process for spare in self._spares if spare.process is not None]
        for process in processes:
            process.kill()
        for process in processes:
            await self._blocking(process.wait, _CLOSE_S)

    def _fill_after(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._system.loop.call_later(delay_s, self._fill)

    def _fill(self) -> None:
        if self._is_closed:
            return
        if self._filling is None or self._filling.done():
            self._filling = self._system.loop.create_task(self._filled())

    async def _filled(self) -> None:
        while self._wanted is not None and len(self._spares) < self._count:
            kind, config = self._wanted
            self._numbers += 1
            id = f"spare-{self._numbers}"
            spare = Spare(id, kind, self._work / id, self._tag_of(id))
            self._spares.append(spare)
            try:
                file = await self._blocking(self._prepare, spare, config)
                if self._is_closed:
                    return
                spare.process = self._start(spare, file, partial(self._ended, spare))
                await self._blocking(self._records.put, spare.record)
            except OSError as error:
                log.warning("a spare executor cannot be started: %s", error)
                if spare.process is not None:
                    spare.process.kill()  # its end is reported, and another one is started
                    return
                self._spares.remove(spare)
                await self._blocking(self._remove, spare)
                self._try_again()
                return

    def _prepare(self, spare: Spare, config: dict[str, str]) -> Path:
        spare.work.mkdir(parents=True, mode=0o700)
        file = spare.work / "spare.json"
        SpareFile(slots=spare.kind.slots, work_directory=str(spare.work), config=config).save(file)
        self._records.put(spare.record)
        return file

    def _ended(self, spare: Spare, status: int) -> None:
        """A process has ended; called in the thread of the event loop."""
        if spare.on_end is not None:
            spare.on_end(status)
            return
        was_taken = spare not in self._spares
        if not was_taken:
            self._spares.remove(spare)
        self._blocking(self._remove, spare)
        if self._is_closed or was_taken:
            return
        if self._wanted is not None and spare.kind != self._wanted[0]:
            self._fill_after(DELAY_S)  # it was ended because of that
            return
        log.warning("a spare executor has ended with status %s: %s", status, spare.output.end)
        self._try_again()

    def _try_again(self) -> None:
        self._fill_after(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
        self._failures += 1

    def _remove(self, spare: Spare) -> None:
        shutil.rmtree(spare.work, ignore_errors=True)
        self._records.remove(spare.id)

    def _blocking(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._system.run_blocking(lambda: function(*args))
