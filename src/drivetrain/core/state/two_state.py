"""States by key, now and exactly as of an application time.

Problem: a user wants the states as of an application time, with all messages older than it and no others.
Messages arrive out of order, and the stream cannot stop at that time.

Design: two states. The **checkpoint state** has the messages older than `checkpoint_ms`, a multiple of the
**step**, and no others. All other messages wait in **panes**, one for each step of application time. The
**current state** of a key is its checkpoint state and its panes together. When the clock passes the end of a
pane, no more messages are expected for it: the pane is merged into the checkpoint state, which is then an
exact **picture** as of that end. A `Picture` stores the previous value of each key that changed, so that any
earlier time can be computed from a later checkpoint state (`as_of`).

The clock is never held back: `advance` takes the input's clock, with or without messages.

A late message (older than the checkpoint state) enters the current state immediately, through the oldest
pane, and is counted; existing pictures do not change.

With a **window** there is a state for each key and window. A window ends when the clock reaches its end: its
result is emitted once, it leaves the current state, and later messages for it are left out and counted.
Without a step there are no panes and no pictures.

All of it is one value of bytes, of which only the touched pages are decoded: see
`core.state.paged_state`.

Invariants, checked by `check()`:

1. `checkpoint_ms` is the last multiple of the step that the clock has reached.
2. No pane begins before `checkpoint_ms`, and each at a multiple of the step.
3. A window is emitted once, when the clock has reached its end.
4. States are decoded only with the rules that they were encoded with: those of an older version of the Task
   are migrated, all of them or none, and others are refused.

Called by persistent Tasks (`spark.compile.persistent_buckets`) for each bucket of keys, and by queries for
states (`spark.state.state_query`). Source: Apache Gearpump's MonoidState (left and right part) and
WindowState.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.core.state.key_timers import KeyTimers
from drivetrain.core.state.state_layer import GONE, IMMUTABLE, Layer
from drivetrain.core.state.state_rules import EVER, EndedWindow, Span, StateRules
from drivetrain.core.state.stored_form import StoredForm
from drivetrain.errors import InputError, InternalError

S = TypeVar("S")

NO_KEY: Final = b""
_MAGIC: Final = b"dts1"
_FRAME: Final = struct.Struct("<4sII")


@dataclass(frozen=True)
class Picture:
    """The step to an exact checkpoint state as of `at_ms`: the encoded previous values of the keys that
    changed.

    None: the key did not exist. `version` of the Task has encoded them; `is_coded`: with a codec of its own.
    """

    at_ms: int
    before: Mapping[Span, Mapping[bytes, bytes | None]]
    version: int = 1
    is_coded: bool = False


class TwoStates(Generic[S]):
    """The states of a bucket of keys; `saved` gives the bytes from which the next one is created."""

    def __init__(self, rules: StateRules[S], saved: bytes | None = None) -> None:
        self.rules: Final = rules
        self.clock_ms = NO_CLOCK_MS
        self.checkpoint_ms = rules.pane(NO_CLOCK_MS)
        self.newest_picture_ms = NO_CLOCK_MS
        """The time of the last picture that changed anything."""
        self.late = 0
        """How many messages arrived late since this object was created."""
        self.changed: dict[tuple[Span, bytes], None] = {}
        """The windows and keys that were updated since this object was created, in order."""
        self.timers = KeyTimers()
        """The timers of the keys, kept with their states."""
        self._is_timeless: Final = rules.window is None and rules.step_ms is None
        self.add: Final = rules.monoid.add
        self.hot_key = NO_KEY
        """The key whose state is at hand, or `NO_KEY`: its messages may be added to `hot`, by `add`."""
        self.hot: Any = None
        self._checkpoint: dict[Span, Layer[S]] = {}
        self._panes: dict[int, dict[Span, Layer[S]]] = {}
        if saved is not None:
            self._take(saved)

    # -- messages ------------------------------------------------------------------------------------

    def update(self, key: bytes, ts_ms: int, message: Any) -> None:
        """Add one message to each of its windows that has not ended."""
        if self._is_timeless:
            if key == self.hot_key:
                self.hot = self.add(self.hot, message)
            else:
                self._heat(key, message)
            return
        monoid, is_late = self.rules.monoid, False
        for span in self.rules.spans(ts_ms):
            if span != EVER and span[1] <= self.clock_ms:
                is_late = True
                continue
            is_late = is_late or self._missed(ts_ms)
            layer = self._layer(span, ts_ms)
            state = layer.get(key)
            layer.put(key, monoid.add(monoid.zero() if state is GONE else state, message))
            self.changed[span, key] = None
        self.late += is_late

    def _heat(self, key: bytes, message: Any) -> None:
        """Add the message, and keep the state of its key at hand: most next messages are of that key, too."""
        state = self._layer(EVER, 0).get(key)
        self.hot = self.add(self.rules.monoid.zero() if state is GONE else state, message)
        self.hot_key = key
        self.changed[EVER, key] = None

    def _cool(self) -> None:
        """Put the state at hand into its layer, before anything else looks there."""
        key, self.hot_key = self.hot_key, NO_KEY
        if key:
            self._checkpoint[EVER].put(key, self.hot)

    def merge(self, key: bytes, span: Span, ts_ms: int, part: S, messages: int) -> None:
        """Add the partial state of some messages of one key, window and pane."""
        if span != EVER and span[1] <= self.clock_ms:
            self.late += messages
            return
        if self._missed(ts_ms):
            self.late += messages
        layer = self._layer(span, ts_ms)
        state = layer.get(key)
        layer.put(key, part if state is GONE else self.rules.monoid.plus(state, part))
        self.changed[span, key] = None

    def _missed(self, ts_ms: int) -> bool:
        return self.rules.step_ms is not None and ts_ms < self.checkpoint_ms

    def _layer(self, span: Span, ts_ms: int) -> Layer[S]:
        self._cool()
        at = self._checkpoint
        if self.rules.step_ms is not None:
            # A late message must not change an existing picture: it goes into the pane of the next one.
            at = self._panes.setdefault(max(self.rules.pane(ts_ms), self.checkpoint_ms), {})
        if span not in at:
            at[span] = Layer(self.rules.codec)
        return at[span]

    # -- states --------------------------------------------------------------------------------------

    def get(self, key: bytes, span: Span = EVER) -> Any:
        """The current state of a key, of all its messages; None without any, or when its window has ended."""
        if key == self.hot_key and type(self.hot) in IMMUTABLE:
            return self.hot
        if span != EVER and span[1] <= self.clock_ms:
            return None
        state = self._joined(key, span)
        return None if state is GONE else state

    def items(self) -> Iterator[tuple[Span, bytes, S]]:
        """All current states."""
        for span in self._spans():
            if span == EVER or span[1] > self.clock_ms:
                for key in self._keys(span):
                    yield span, key, self._joined(key, span)

    def spans_of(self, key: bytes) -> list[Span]:
        """The windows in which a key has a current state, in order."""
        return [span for span in self._spans() if self.get(key, span) is not None]

    def _joined(self, key: bytes, span: Span) -> Any:
        state: Any = GONE
        for layer in self._layers(span):
            part = layer.own(key)
            if part is not GONE:
                state = part if state is GONE else self.rules.monoid.plus(state, part)
        return state

    def _layers(self, span: Span) -> list[Layer[S]]:
        self._cool()
        found = [self._checkpoint, *(self._panes[pane] for pane in sorted(self._panes))]
        return [at[span] for at in found if span in at]

    def _spans(self) -> list[Span]:
        self._cool()
        return sorted({span for at in (self._checkpoint, *self._panes.values()) for span in at})

    def _keys(self, span: Span) -> dict[bytes, None]:
        return {key: None for layer in self._layers(span) for key in layer.keys()}  # noqa: SIM118 - no dict

    # -- time ----------------------------------------------------------------------------------------

    def advance(self, clock_ms: int) -> tuple[list[EndedWindow[S]], list[Picture]]:
        """Move the clock (ms, never back); returns the windows that end, and the pictures."""
        if clock_ms < self.clock_ms:
            raise InternalError(f"the clock of states went back from {self.clock_ms} to {clock_ms} ms")
        over = [s for s in self._spans() if s != EVER and self.clock_ms < s[1] <= clock_ms]
        ended = [EndedWindow(span, key, self._joined(key, span)) for span in over for key in self._keys(span)]
        self.clock_ms = clock_ms
        if self.rules.step_ms is None:
            for span in over:
                del self._checkpoint[span]
            return ended, []
        to_ms = self.rules.pane(clock_ms)
        pictures = []
        while (at_ms := self._next_picture_ms()) is not None and at_ms <= to_ms:
            pictures.append(self._absorb(at_ms))
        self.checkpoint_ms = to_ms
        if pictures:
            self.newest_picture_ms = pictures[-1].at_ms
        return ended, pictures

    def next_ms(self) -> int | None:
        """The time at which `advance` or a timer is due next even without messages; None if neither is."""
        ends = [span[1] for span in self._spans() if span != EVER and span[1] > self.clock_ms]
        others = (self._next_picture_ms(), self.timers.next_ms())
        return min([*ends, *(ms for ms in others if ms is not None)], default=None)

    def _next_picture_ms(self) -> int | None:
        """The time of the next picture that changes anything: a pane ends, or a window is over by then."""
        step_ms = self.rules.step_ms
        if step_ms is None:
            return None
        ends = [pane + step_ms for pane in self._panes]
        ends += [-(-span[1] // step_ms) * step_ms for span in self._checkpoint if span != EVER]
        return min(ends, default=None)

    def _absorb(self, at_ms: int) -> Picture:
        """Move the checkpoint state to a time."""
        assert self.rules.step_ms is not None
        before: dict[Span, dict[bytes, bytes | None]] = {}
        for span, pane in self._panes.pop(at_ms - self.rules.step_ms, {}).items():
            if span != EVER and span[1] <= at_ms:
                continue  # the window is over by then
            layer = self._checkpoint.setdefault(span, Layer(self.rules.codec))
            kept = before[span] = {}
            for key in pane.keys():  # noqa: SIM118 - no dict
                kept[key] = layer.encoded(key)
                part = pane.get(key)
                layer.put(key, part if kept[key] is None else self.rules.monoid.plus(layer.get(key), part))
        for span in [span for span in self._checkpoint if span != EVER and span[1] <= at_ms]:
            layer = self._checkpoint.pop(span)
            before[span] = {key: layer.encoded(key) for key in layer.keys()}  # noqa: SIM118 - no dict
        return Picture(at_ms, before, self.rules.form.version, self.rules.is_coded)

    def as_of(self, pictures: Iterable[Picture], key: bytes | None = None) -> dict[tuple[Span, bytes], S]:
        """The checkpoint state before these pictures, of all keys or of one.

        They must be all pictures after the requested time, and none before it.
        """
        present = self.rules.form.version, self.rules.is_coded
        self._cool()
        found: dict[tuple[Span, bytes], tuple[bytes | None, int, bool]] = {}
        for picture in sorted(pictures, key=lambda p: p.at_ms):
            for span, kept in picture.before.items():
                wanted = kept.items() if key is None else [(key, kept[key])] if key in kept else []
                for at, state in wanted:
                    found.setdefault((span, at), (state, picture.version, picture.is_coded))
        for span, layer in self._checkpoint.items():
            for at in layer.keys() if key is None else [key]:
                if (span, at) not in found:
                    found[span, at] = layer.encoded(at), *present
        decoded = self.rules.decoded
        return {
            (span, at): decoded(at, state, version, is_coded=is_coded)
            for (span, at), (state, version, is_coded) in found.items()
            if state is not None
        }

    # -- as bytes ------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep."""
        return not self._checkpoint and not self._panes and not self.timers

    def saved(self) -> bytes:
        """All of it as bytes; only changed pages are encoded again."""
        self._cool()
        layers: list[tuple[int | None, Span, bytes]] = []
        parts: list[tuple[int | None, dict[Span, Layer[S]]]] = [(None, self._checkpoint)]
        for at, spans in parts + sorted(self._panes.items()):
            layers += [(at, span, spans[span].saved()) for span in sorted(spans)]
        head = _Head(
            *self.rules.form,
            self.rules.is_coded,
            self.clock_ms,
            self.checkpoint_ms,
            self.newest_picture_ms,
            [(at, span[0], span[1], len(saved)) for at, span, saved in layers],
            self.timers.kept(),
        )
        return _framed(msgspec.msgpack.encode(head), (saved for _, _, saved in layers))

    def _take(self, saved: bytes) -> None:
        head, body = _unframed(saved, _Head, "the state of a bucket of keys")
        self.rules.require_readable(StoredForm(head.content, head.rules, head.version))
        self.clock_ms, self.checkpoint_ms = head.clock_ms, head.checkpoint_ms
        self.newest_picture_ms = head.newest_picture_ms
        self.timers = KeyTimers(head.timers)
        at = 0
        for pane, start, end, size in head.layers:
            into = self._checkpoint if pane is None else self._panes.setdefault(pane, {})
            layer = into[start, end] = Layer(self.rules.codec, body[at : at + size])
            if head.version != self.rules.form.version:
                layer.migrate(self.rules, head.version, is_coded=head.is_coded)
            at += size

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        step_ms = self.rules.step_ms
        if step_ms is not None and self.checkpoint_ms != self.clock_ms - self.clock_ms % step_ms:
            raise InternalError(f"two states, invariant 1: {self.checkpoint_ms} at {self.clock_ms} ms")
        if any(pane < self.checkpoint_ms or step_ms is None or pane % step_ms for pane in self._panes):
            raise InternalError(f"two states, invariant 2: {sorted(self._panes)} at {self.checkpoint_ms} ms")
        if step_ms is None and any(span[1] <= self.clock_ms for span in self._checkpoint if span != EVER):
            raise InternalError(f"two states, invariant 3: {sorted(self._checkpoint)} at {self.clock_ms} ms")


class _Head(msgspec.Struct, array_like=True):
    content: str
    rules: str
    version: int
    is_coded: bool
    clock_ms: int
    checkpoint_ms: int
    newest_picture_ms: int
    layers: list[tuple[int | None, int, int, int]]
    timers: list[tuple[int, bytes]] = []


class _StoredPicture(msgspec.Struct, array_like=True):
    at_ms: int
    before: list[tuple[int, int, dict[bytes, bytes | None]]]
    version: int
    is_coded: bool


H = TypeVar("H")


def encoded_picture(picture: Picture) -> bytes:
    """Encode a picture."""
    before = [(span[0], span[1], dict(kept)) for span, kept in sorted(picture.before.items())]
    kept = _StoredPicture(picture.at_ms, before, picture.version, picture.is_coded)
    return _framed(msgspec.msgpack.encode(kept), ())


def decoded_picture(encoded: bytes) -> Picture:
    """Decode a picture; raises InputError for damaged bytes."""
    kept, _ = _unframed(encoded, _StoredPicture, "a picture of states")
    before = {(start, end): before for start, end, before in kept.before}
    return Picture(kept.at_ms, before, kept.version, kept.is_coded)


def _framed(head: bytes, body: Iterable[bytes]) -> bytes:
    content = b"".join([head, *body])
    return _FRAME.pack(_MAGIC, zlib.crc32(content, len(head)), len(head)) + content


def _unframed(framed: bytes, kind: type[H], what: str) -> tuple[H, memoryview]:
    got = f"{len(framed)} bytes"
    if len(framed) >= _FRAME.size:
        magic, checksum, size = _FRAME.unpack_from(framed)
        content = memoryview(framed)[_FRAME.size :]
        if magic == _MAGIC and zlib.crc32(content, size) == checksum:
            return msgspec.msgpack.decode(content[:size], type=kind), content[size:]
        got = f"{len(framed)} bytes that begin with {framed[:4]!r}, and have another checksum"
    raise InputError(
        f"{what} is damaged",
        expected=f"{_MAGIC!r}, a checksum and what it is of",
        got=got,
        remedy="go back to a checkpoint or a savepoint, or start over with --fresh",
    )
