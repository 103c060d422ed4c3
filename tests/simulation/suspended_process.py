"""A process with a file sink in an object store, which can be suspended before each of its requests.

It makes batches, copies its checkpoints and publishes with them, all with the real code; its application is a
stream of numbers. The process runs in a thread that goes on when it is told to, request by request.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from arrow_frame import frame

from drivetrain.api.sinks import FileSink
from drivetrain.config import Config
from drivetrain.connectors.opening import open_sink
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Snapshot
from drivetrain.core.replay.replay import Life
from drivetrain.errors import OutputError, UnavailableError
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.runtime.checkpoints.checkpoint_parts import is_whole
from drivetrain.runtime.checkpoints.claim_file import claim_name
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import FORMAT, Manifest, SavedFile, files_below
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext
from model_store import ModelStore

MESSAGES = 40
REFUSALS = "an earlier life|claims the output directory at the same time"
COPIED = {"checkpoint.copy-to": "s3://lake/copies"}
SINK = "a"


CURRENT = threading.local()
"""The process of a thread."""


class Gone(BaseException):
    """The process never wakes again."""


class TooFastError(Exception):
    """The former process was faster: the user tries again."""


@dataclass
class Progress:
    """How far the application has come: the next message, the next batch, and the last transaction."""

    message: int = 0
    batch: int = 0
    txid: int = 0


@dataclass
class SuspendedProcess:
    """One process, by its number; `objects` are the store's, which all processes share."""

    number: int
    objects: dict[str, bytes]
    sink: FileSink
    directory: Path
    random: Random
    starts_over: bool = False
    is_over: bool = False
    taken_over: TakenOverError | None = None
    was_refused: bool = False
    error: BaseException | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = ModelStore(self.objects, before=self._before)
        self.progress = Progress()
        self._is_gone = False
        self._goes, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"process {self.number}", daemon=True)
        self._thread.start()
        self._waits.acquire()

    # -- for the one who lets it run -----------------------------------------------------------------------

    def run_on(self, requests: int) -> None:
        """Let it send so many requests, or end."""
        for _ in range(requests):
            if self.is_over:
                break
            self._goes.release()
            self._waits.acquire()

    def end(self) -> None:
        """End it where it is: it is never seen again."""
        self._is_gone = True
        while not self.is_over:
            self.run_on(1)
        self._thread.join()

    # -- its thread ----------------------------------------------------------------------------------------

    def _before(self, what: str, path: str) -> None:
        with self._one_at_a_time:
            self._waits.release()
            self._goes.acquire()
            self.requests.append((what, path))
            if self._is_gone:
                raise Gone

    def _run(self) -> None:
        CURRENT.process = self
        try:
            self._application()
        except Gone:
            pass
        except TakenOverError as error:
            self.taken_over = error
        except OutputError as error:
            if not re.search(REFUSALS, str(error)):
                self.error = error
            self.was_refused = True
        except BaseException as error:  # noqa: BLE001 - judged by the test
            self.error = None if self._is_gone else error
        self.is_over = True
        self._waits.release()

    def _application(self) -> None:
        state = self.directory / "state"
        copies = CopiedCheckpoints(self.store, "copies", "s3://lake/copies", self.directory)
        while True:
            with contextlib.suppress(TooFastError):
                record, sink = self._begun(copies, state)
                had_predecessor = copies.claim(starts_over=self.starts_over)
                if not copies.is_outdated:
                    break
            shutil.rmtree(state, ignore_errors=True)
            (self.directory / "copied-by").unlink(missing_ok=True)
        last = None if record is None else record.fragments[SINK].sinks[SINK]
        if had_predecessor:
            sink.succeed(claim_name(self.directory), last, is_copied=True)
        sink.claimed(claim_name(self.directory))
        if record is not None and last is not None:
            publish_transaction({SINK: sink}, record.txid, {SINK: last})
        while self.progress.message < MESSAGES:
            self._batch(sink)
            if self.random.random() < 0.3:
                sink.roll()
            if self.random.random() < 0.4:
                self._checkpoint(copies, sink)
        self._checkpoint(copies, sink)
        sink.roll(ends=True)

    def _begun(self, copies: CopiedCheckpoints, state: Path) -> tuple[CheckpointRecord | None, Any]:
        """Bring in the newest copy, and open the sink."""
        record = None
        try:
            newest = copies.begin()
            if newest is not None and newest.manifest is not None and not self.starts_over:
                record = newest.manifest.record
                copies.fetch(newest, state)
        except UnavailableError as error:
            if "replaced faster than it is read" not in str(error):
                raise
            raise TooFastError from error
        self.progress = Progress()
        if record is not None:
            position = int(record.fragments[SINK].sources["numbers"])
            self.progress = Progress(position, record.fragments[SINK].batch_id + 1, record.txid)
        state.mkdir(exist_ok=True)
        config = Config.load(None, {}, {"s3.endpoint": f"http://process-{self.number}", **COPIED})
        opened: Any = open_sink(self.sink, SinkContext("app-1", SINK, str(state / "sinks" / SINK), config))
        if self.starts_over:
            opened.check_fresh()
            opened.fresh()
        try:
            opened.validate()
        except OutputError as error:  # it has made its first checkpoint, and published, since `begin`
            if record is not None or not re.search("an earlier life|is not empty", str(error)):
                raise
            raise TooFastError from error
        return record, opened

    def _batch(self, sink: Any) -> None:
        now = self.progress
        ids = range(now.message, min(MESSAGES, now.message + self.random.choice((0, 1, 1, 2, 3))))
        odd = [id % 2 == 1 for id in ids]
        sink.prepare(frame(id=pa.array(ids, pa.int64()), odd=pa.array(odd, pa.bool_())), now.batch)
        self.progress = Progress(now.message + len(ids), now.batch + 1, now.txid)

    def _checkpoint(self, copies: CopiedCheckpoints, sink: Any) -> None:
        now = self.progress
        last, txid = now.batch - 1, now.txid + 1
        self.progress = Progress(now.message, now.batch, txid)
        snapshot = Snapshot(last, {"numbers": str(now.message)}, {}, {SINK: last})
        record = CheckpointRecord(txid, txid, {SINK: snapshot})

        def manifest(files: Mapping[str, SavedFile]) -> Manifest:
            return Manifest(FORMAT, "app", "app-1", {}, {}, 0, {}, Life(), record, None, {}, dict(files))

        copies.add(self._files_of_state(), manifest)
        publish_transaction({SINK: sink}, txid, {SINK: last})

    def _files_of_state(self) -> Iterator[tuple[str, Path]]:
        state = self.directory / "state"
        for name in sorted(files_below(state)):
            if is_whole(Path(name).name) and name != "manifest.json":
                yield name, state / name


@contextlib.contextmanager
def all_ended(processes: list[SuspendedProcess]) -> Iterator[None]:
    """End every process that is left."""
    try:
        yield
    finally:
        for process in processes:
            process.end()
