"""An exactly-once Kafka sink on a broker that is a list, killed between any two effects, its marker lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from drivetrain import sinks
from drivetrain.connectors.kafka import kafka_sink, transactional_producer
from drivetrain.connectors.kafka.client_error import ClientError
from drivetrain.connectors.kafka.kafka_sink import ExactlyOnceKafka
from drivetrain.connectors.kafka.target_topic import KafkaTarget
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.errors import OutputError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.segments import read_segment, write_segment
from drivetrain.simulator.simulate import chosen_seeds, run_seeds
from drivetrain.spark.connector.sink import SinkContext

BATCHES = 12
LIVES = 60
NOT_SENT = ClientError("REQUEST_TIMED_OUT", "not delivered", passes=True)
UNKNOWN = ClientError("OUT_OF_ORDER_SEQUENCE_NUMBER", "nobody knows how it ended")


class KilledError(BaseException):
    """The process is dead."""


class Process:
    """Dies at one of the next steps that it takes; a dead one does nothing more."""

    def __init__(self, lasts: int) -> None:
        self._left = lasts

    def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise KilledError

    def stepping(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, before and after which the process may die."""

        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = call(*args, **kwargs)
            self.step()
            return result

        return stepped


class Broker:
    """What is committed, the marker, and the newest producer."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.marker: Marker | None = None
        self.epoch = 0


class Client:
    """A transactional producer of that broker, which sometimes fails."""

    def __init__(self, broker: Broker, process: Process, draw: Random, note: Callable[[], Any]) -> None:
        self._broker, self._process, self._draw, self._note = broker, process, draw, note
        self._epoch = 0
        self._sent: list[int] = []
        self._marker: Marker | None = None

    def init(self) -> None:
        self._process.step()
        self._broker.epoch += 1
        self._epoch = self._broker.epoch
        self._sent, self._marker = [], None

    def begin(self) -> None:
        self._process.step()
        self._sent, self._marker = [], None

    def send(self, segment: Segment) -> int:
        self._process.step()
        batches = read_segment(ChannelFiles("/"), segment)  # it must be there, and whole
        self._sent += [int(value) for batch in batches for value in batch.column("value").to_pylist()]
        self._fail(NOT_SENT)
        return segment.rows

    def mark(self, _group: str, _topic: str, offset: int, metadata: str) -> None:
        self._process.step()
        self._marker = Marker(metadata.removesuffix("\0"), offset - 1)
        self._fail(NOT_SENT)

    def commit(self) -> None:
        self._process.step()
        assert self._epoch == self._broker.epoch, "a producer that is fenced commits"
        assert self._marker is not None, "a transaction without its marker"
        noted = self._note()
        assert not self._sent or noted.begun == self._marker.batch, f"no note of {self._marker}: {noted}"
        self._fail(NOT_SENT)
        self._broker.messages += self._sent
        self._broker.marker = self._marker
        self._sent, self._marker = [], None
        self._process.step()
        self._fail(UNKNOWN)

    def abort(self) -> None:
        self._process.step()
        if self._marker is None:
            raise UNKNOWN
        self._sent, self._marker = [], None

    def refusal(self) -> None:
        return None

    def close(self) -> None:
        self._sent = []

    def _fail(self, error: ClientError) -> None:
        if self._draw.random() < 0.05:
            raise error


class Note:
    """A note that is written now, or as late as it may be."""

    def __init__(self, write: Callable[[], None], *, is_late: bool) -> None:
        self._write: Callable[[], None] | None = write
        self._error: BaseException | None = None
        if not is_late:
            self.finish()

    def finish(self) -> None:
        write, self._write = self._write, None
        if write is not None:
            try:
                write()
            except BaseException as error:  # noqa: BLE001 - as a future keeps it
                self._error = error

    def result(self) -> None:
        self.finish()
        if self._error is not None:
            raise self._error


class Notes:
    """Stands for the thread that writes notes."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    def submit(self, call: Callable[..., None], *args: Any) -> Note:
        return Note(lambda: call(*args), is_late=self._draw.random() < 0.5)


def opened(state: Path, broker: Broker, process: Process, draw: Random) -> ExactlyOnceKafka:
    """The sink in a new process; a batch is a list of numbers."""
    target = KafkaTarget(sinks.kafka("b:1", "t"), {}, "group")
    writer = ExactlyOnceKafka(target, SinkContext("app", "out", str(state)))
    outbox = writer._outbox
    client = Client(broker, process, draw, Outbox(str(state), "out").publication)

    def staged(rows: Sequence[int], batch_id: int, *, kept: bool) -> PreparedBatch:
        outbox._clean()
        process.step()
        columns = {
            "value": pa.array([str(row).encode() for row in rows]),
            TS: pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
        }
        files = (outbox._store if kept else outbox._passing).files
        parts = [write_segment(files, "out", pa.table(columns).to_batches(), compressed=kept)] if rows else []
        process.step()
        return PreparedBatch(batch_id, tuple(parts))

    replaced: dict[object, dict[str, Any]] = {
        target: {"marker": lambda _timeout_s: broker.marker},
        writer: {"_staged": staged},
        writer._producer: {"_connected": lambda: client},
        outbox: {
            name: process.stepping(getattr(outbox, name)) for name in ("keep", "drop", "discard", "prepare")
        },
    }
    for owner, methods in replaced.items():
        for name, method in methods.items():
            setattr(owner, name, method)
    return writer


def resolved_by_hand(state: Path, broker: Broker, batches: list[list[int]]) -> None:
    """Do what the error says: look whether the messages of the batch are there."""
    note = state / "publication.json"
    told = json.loads(note.read_text())
    assert told["begun"] is not None, "the sink does not know, and nothing had begun"
    is_there = set(batches[told["begun"]]) <= set(broker.messages)
    told["published"] = told["begun"] if is_there else told["published"]
    note.write_text(json.dumps({**told, "begun": None}))


def run(seed: int, state: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Publish all batches, however often the process dies; returns how often it died."""
    draw, broker, deaths, done = Random(seed), Broker(), 0, 0
    monkeypatch.setattr(kafka_sink, "_NOTING", Notes(draw))
    monkeypatch.setattr(kafka_sink, "wait", lambda notes: [note.finish() for note in notes])
    monkeypatch.setattr(transactional_producer, "_PAUSE_S", 0.0)
    has_checkpoints = draw.random() < 0.3
    batches = [[10 * n + i for i in range(draw.choice([0, 1, 5]))] for n in range(BATCHES)]
    for life in range(LIVES):
        is_last = life == LIVES - 1
        process = Process(10_000 if is_last else draw.randrange(1, 60))
        writer = opened(state, broker, process, draw)
        if draw.random() < 0.3 and not is_last:
            broker.marker = None  # Kafka has forgotten it
        try:
            while done < BATCHES:
                if not has_checkpoints:
                    writer.write(batches[done], done)  # type: ignore[arg-type]
                else:
                    writer.prepare(batches[done], done)  # type: ignore[arg-type]
                    writer.commit(done)
                process.step()
                done += 1  # Spark commits
        except KilledError:
            deaths += 1
        except OutputError as error:
            if "unknown whether batch" not in str(error):
                raise
            resolved_by_hand(state, broker, batches)
        if done == BATCHES:
            break
    assert broker.messages == [row for batch in batches for row in batch]
    if writer._outbox._cleaned:  # the last process has removed what those before it left
        prepared = [batch for n in writer.prepared() if (batch := writer._outbox.prepared(n)) is not None]
        named = {part.path for batch in prepared for part in batch.segments}
        kept = {f"segments/{path.name}" for path in state.rglob("*.arrow")}
        assert kept == named, "files that nobody needs stay"
    return deaths


def test_each_batch_is_published_once_however_often_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[int] = []
    run_seeds(
        lambda seed: deaths.append(run(seed, tmp_path / str(seed), monkeypatch)),
        chosen_seeds(100, at_most=20_000),
    )
    if len(deaths) > 1:
        assert sum(deaths) > len(deaths), "hardly any process dies"
