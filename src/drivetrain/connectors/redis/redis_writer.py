"""The Redis sink: hashes, JSON texts and stream entries, each batch once, even if Redis loses some.

The problem: Spark may run a batch again after a crash, and an entry of a stream cannot be taken back. A
process that was considered dead may continue to write. And Redis itself answers before its data is on the
disk (`appendfsync everysec`) or at a replica: after a crash, or if a replica takes over, the last seconds
that it confirmed may be gone.

The design: a batch is prepared in the sink's outbox, and published by a script (`redis_scripts`) that writes
its rows and its number in one step. The number, kept in a mark beside the rows, decides whether a batch is
published. A process takes over by a new epoch in the mark; the script refuses older epochs.

A published batch stays in the outbox for a while. Rows and mark are lost together, so a mark that is behind
the local note shows what Redis has lost: these batches are published again, in order. If the outbox has
already dropped one of them, the sink stops or continues, as it was declared.

What if we die here: before the script has run, the batch waits; after it, the mark shows that the batch is
published, whatever the note says.

Invariants:

1. A batch is in Redis completely, exactly if the mark has its number or a later one.
2. A mark that is behind what was confirmed never goes unnoticed.

Called by the engine. Source: the transactional outbox; fencing by epochs as in Kafka's transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drivetrain.api.connectors.redis_sink import RedisSink
from drivetrain.api.sinks import Guarantee
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.connectors.redis.confirmed_batches import ConfirmedBatches
from drivetrain.connectors.redis.redis_connection import RedisMark, RedisServer
from drivetrain.connectors.redis.redis_rows import packed_chunks, redis_columns, require_redis_keys
from drivetrain.connectors.redis.redis_scripts import MOVE_ON, PUBLISH, TAKE_OVER
from drivetrain.core.checkpoint.publication import NONE, Marker, Publication
from drivetrain.errors import InternalError, OutputError, UnavailableError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.session.spark_errors import own_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger("drivetrain.redis")

_MOST_BYTES = 512 * 2**20
"""Redis accepts a command of a gibibyte, and needs as much memory again to unpack it."""
_LOSSES = 5
"""How often a batch may meet a Redis that has lost something, before the sink gives up."""


class RedisWriter:
    """Writes the batches of one Redis sink; see the module docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: RedisSink, context: SinkContext) -> None:
        self._sink = sink
        self._mark_key = f"drivetrain:{context.app_id}:{context.sink_id}"
        self._outbox = Outbox(context.state_dir, context.sink_id)
        self._confirmed = ConfirmedBatches(self._outbox, sink.keep_ms)
        self._server = RedisServer(sink)
        self._kind = "stream" if sink.stream is not None else sink.value
        self._known: Publication | None = None
        self._epoch = 0

    # -- before anything runs --------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise unless the server answers and suits, and our entries in a stream belong to this state."""
        self._server.check()
        mark, note = self._server.mark(self._mark_key), self._outbox.publication()
        if (
            mark is not None
            and mark.rows
            and self._sink.stream
            and (note is None or note.token != mark.token)
        ):
            raise self._foreign(mark)

    def newest(self) -> int:
        """The newest batch of this state that is published; `NONE` if there is none."""
        if self._known is not None:
            return self._known.published
        note, mark = self._outbox.publication(), self._server.mark(self._mark_key)
        marker = None if mark is None else Marker(mark.token, mark.batch)
        return NONE if note is None else note.newest(marker)

    def check_fresh(self) -> None:
        """Raise `OutputError` when a stream has entries, unless the sink states what to do with them."""
        if self._sink.stream is None or self._sink.on_fresh in ("keep", "empty"):
            return
        mark = self._server.mark(self._mark_key)
        if mark is not None and mark.rows:
            raise OutputError(
                "the stream has entries of this application, which cannot be distinguished from others",
                where=self._sink.name,
                got=f"{mark.rows} entries were published",
                remedy='choose what --fresh does with them: on_fresh="empty" in the sink deletes the stream, '
                'on_fresh="keep" leaves them',
            )

    def fresh(self) -> None:
        """Forget what was published, and delete the stream if the sink is declared so."""
        self._outbox.forget()
        self._confirmed.forget()
        self._known = None
        emptied = [self._sink.stream] if self._sink.stream and self._sink.on_fresh == "empty" else []
        self._server.delete(self._mark_key, *emptied)

    # -- batches ---------------------------------------------------------------------------------------

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch in one step; 0 if it was published before."""
        if not self.prepare(df, batch_id):
            return 0  # nothing to publish, and the same again after a crash
        for earlier in self.prepared():
            if earlier < batch_id:  # of a life that a replay has ended: see core.replay
                self._outbox.drop(earlier)
        return self.commit(batch_id)

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch unseen, replacing an earlier try; returns their number."""
        if batch_id <= self._published():
            return 0
        with own_errors():
            staged = self._outbox.stage(redis_columns(df, self._sink), batch_id)
        for messages in self._outbox.messages(staged):
            # The script would refuse them when it is too late to compute other rows.
            require_redis_keys(_without_time(messages), self._sink)
        if staged.rows:
            self._outbox.prepare(staged)
        else:
            self._outbox.drop(batch_id)
        return staged.rows

    def prepared(self) -> list[int]:
        """The batches that wait to be committed, in increasing order."""
        published = self._published()
        return [batch for batch in self._outbox.batches() if batch > published]

    def commit(self, batch_id: int) -> int:
        """Publish a prepared batch in one step; 0 if it was published before."""
        for _ in range(_LOSSES):
            known = self._opened()
            if batch_id <= known.published:
                return 0
            note = self._outbox.begin()
            if note != known:
                raise self._fenced(
                    f"{self._outbox.note} has batch {note.published}; this process, {known.published}"
                )
            batch = self._outbox.prepared(batch_id)
            if batch is None:
                raise InternalError(
                    f"batch {batch_id} is committed, and was not prepared", where=self._sink.name
                )
            earlier = [id for id in self.prepared() if id < batch_id]
            if earlier:
                raise InternalError(
                    f"batch {batch_id} is committed before {earlier[0]}", where=self._sink.name
                )
            if self._publish(batch, known.published):
                self._known = self._confirmed.confirm(Publication(known.token, batch_id))
                self._confirmed.tidy()
                return batch.rows
            self._known = None  # Redis has lost something since; opening again finds out what
        raise self._losing()

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch that was not published."""
        if batch_id <= self._opened().published:
            raise InternalError(f"batch {batch_id} is aborted, and is published", where=self._sink.name)
        self._outbox.drop(batch_id)

    # -- taking over -----------------------------------------------------------------------------------

    def _published(self) -> int:
        """The last published batch, as far as known without asking Redis; `commit` asks."""
        known = self._known or self._outbox.publication()
        return NONE if known is None else known.published

    def _opened(self) -> Publication:
        """What is published; takes over from earlier processes if it is not known."""
        if self._known is not None:
            return self._known
        note = self._outbox.begin()
        before = self._take_over(note)
        self._confirmed.recall(note.published)
        if before is not None and before.token != note.token:
            found = note.published
        else:
            found = NONE if before is None else before.batch
            if found < note.published:
                self._restore(found, note.published)
                found = note.published
        log.info("%s: published up to batch %s", self._sink.name, found)
        self._known = note
        if found > note.published:
            self._known = self._confirmed.confirm(Publication(note.token, found))
            self._confirmed.recall(found)
        return self._known

    def _take_over(self, note: Publication) -> RedisMark | None:
        """Begin an epoch of our own; the mark before it."""
        known = (note.token, self._epoch, note.published, self._kind)
        reply = self._server.script(TAKE_OVER, self._mark_key, known)
        before = RedisMark(reply[0].decode(), int(reply[2] or NONE), int(reply[3] or 0)) if reply[0] else None
        if before is not None and not int(reply[1]):
            raise self._foreign(before)
        self._epoch = int(reply[1])
        return before

    def _restore(self, found: int, published: int) -> None:
        """Publish again what Redis has lost, or do what the sink declares if that is impossible."""
        kept = [batch for batch in self._outbox.batches() if found < batch <= published]
        if found >= self._confirmed.settled() and kept and kept[-1] == published:
            log.warning(
                "%s: Redis has lost batches that it had confirmed; publishing %s again", self._sink.name, kept
            )
            for id in kept:
                batch = self._outbox.prepared(id)
                if batch is None or not self._publish(batch, found):
                    raise self._losing()
                found = id
            return
        what = "Redis has lost results that it had confirmed, more than the sink has kept"
        mark = "no record of any batch" if found == NONE else f"batch {found}"
        if self._sink.on_loss == "continue":
            log.warning("%s: %s: batch %s was the last, there is %s", self._sink.name, what, published, mark)
            self._move_on(published)
            return
        raise OutputError(
            what,
            where=self._sink.name,
            expected=f"batch {published}, or at least batch {self._confirmed.settled()}",
            got=mark,
            remedy="restore the data of Redis, or start over with --fresh (and --replay-from, where the loss "
            'begins), or continue without the lost results: on_loss="continue" in the sink. Against the next '
            "loss use appendonly yes in Redis, and a longer keep= in the sink",
        )

    def _move_on(self, published: int) -> None:
        if self._server.script(MOVE_ON, self._mark_key, (self._epoch, published)) != [1]:
            raise self._fenced(f"{self._mark_key} has a newer epoch")

    # -- publishing ------------------------------------------------------------------------------------

    def _publish(self, batch: PreparedBatch, previous: int) -> bool:
        """Have the script write a batch; False if Redis is no longer where we left it."""
        sink = self._sink
        arguments: list[str | int | bytes] = [
            self._outbox.begin().token, self._epoch, previous, batch.batch, self._kind, sink.stream or "",
            sink.max_length or 0, sink.expire_ms or 0, *self._chunks(batch),
        ]  # fmt: skip
        reply = self._server.script(PUBLISH, self._mark_key, arguments)
        match reply[0].decode():
            case "published" | "done":
                return True
            case "lost":
                return False
            case "fenced":
                raise self._fenced(
                    f"{self._mark_key} has epoch {reply[1].decode()}; this process, {self._epoch}"
                )
            case "type":
                key, kind = (text.decode(errors="replace") for text in reply[1:3])
                raise OutputError(
                    "there is a value of another type under a key of the sink",
                    where=sink.name,
                    expected="string" if self._kind == "json" else self._kind,
                    got=f"{key} is a {kind}",
                    remedy="delete it, or choose another prefix; the same command continues with the batch",
                )
            case _:
                raise self._foreign(RedisMark(reply[1].decode(), NONE, 0))

    def _chunks(self, batch: PreparedBatch) -> list[bytes]:
        chunks, size = [], 0
        for chunk in packed_chunks(self._messages(batch), self._sink):
            size += len(chunk)
            if size > _MOST_BYTES:
                raise OutputError(
                    "a batch is too large for one transaction of Redis",
                    where=self._sink.name,
                    expected=f"at most {_MOST_BYTES >> 20} MiB",
                    remedy="make batches smaller: lower run.max-batch-bytes or run.max-batch-rows",
                )
            chunks.append(chunk)
        return chunks

    def _messages(self, batch: PreparedBatch) -> Iterator[pa.RecordBatch]:
        return map(_without_time, self._outbox.messages_to_publish(batch, "published"))

    # -- errors ----------------------------------------------------------------------------------------

    def _foreign(self, mark: RedisMark) -> OutputError:
        return OutputError(
            "Redis has results of this application from another state directory",
            where=self._sink.name,
            expected="results of this state directory, or none",
            got=f"the mark of another one, {self._mark_key}, which published {mark.rows} rows",
            remedy="use the state directory of the run that wrote them, or another stream; or choose "
            'on_fresh="keep" or "empty" in the sink, and use --fresh once',
        )

    def _fenced(self, got: str) -> OutputError:
        return OutputError(
            "another process of this application publishes these results now",
            where=self._sink.name,
            got=got,
            remedy="let only one of them run; nothing was written by this one",
        )

    def _losing(self) -> UnavailableError:
        return UnavailableError(
            "Redis loses results again and again",
            where=self._sink.name,
            remedy="look at why it restarts, or changes its primary; the same command continues",
        )


def _without_time(messages: pa.RecordBatch) -> pa.RecordBatch:
    """The messages without the timestamps that segments have."""
    return messages.select([name for name in messages.schema.names if name != TS])
