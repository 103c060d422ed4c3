"""The guide's promises for a recipe, in plain Python: no batches, and no clock but that at the end.

Every stream is computed as a whole, from all messages of its inputs. A message is `due` when the clock
reaches that time: at once, unless something waits for the end of a window. If inputs do not end, messages
that are not due by the last clock are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .model_hash import in_sample
from .model_patterns import matches
from .model_windows import (
    as_of,
    deduplicated,
    earlier_counts,
    everything_windows,
    joined,
    late_of,
    pauses,
    session_windows,
    sliding_windows,
    summed,
)
from .recipe import (
    WINDOW,
    Add,
    AsOfJoin,
    Deduplicate,
    Early,
    Filter,
    FlatMap,
    Join,
    Keyed,
    Late,
    Log,
    Map,
    Match,
    Persistent,
    Recipe,
    Repartition,
    Sample,
    Source,
    Step,
    TableJoin,
    Task,
    Top,
    Union,
    Window,
    facts_of,
)

SECOND = 1_000_000
END = 10**18
"""Later than every timestamp, in µs: the clock of an input that has ended."""


@dataclass(frozen=True)
class Message:
    """One of a stream; `extras` are further columns, times in µs."""

    ts: int
    key: Any
    n: int | None
    due: int = -END
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Modelled:
    """The messages of a stream at the end; `clock` (µs) is the time up to which it is complete."""

    messages: tuple[Message, ...]
    clock: int = END


@dataclass(frozen=True)
class Expected:
    """The rows that a sink must hold: columns `at`, key, n and the extra ones of its stream, each row with
    its count.

    For a window with late messages, `least` are the rows that it must hold by the promised disorder, and
    `rows` those that it would hold if nothing had been late.
    """

    rows: Counter[tuple[Any, ...]]
    columns: tuple[str, ...]
    least: Counter[tuple[Any, ...]] | None = None


def expected(recipe: Recipe) -> list[Expected]:
    """The rows that each sink must hold, in the order of the recipe's sinks."""
    streams, facts = streams_of(recipe), facts_of(recipe)
    found = []
    for sink in recipe.sinks:
        stream, of = streams[sink.stream], facts[sink.stream]
        columns = ("at", "key", "n", *of.extras) if of.timed else ("key", "n", *of.extras)
        is_loose = reads_loose(recipe, sink.stream)
        least = _rows(_in_time(recipe, sink.stream), columns) if is_loose else None
        found.append(Expected(_rows(stream.messages, columns), columns, least))
    return found


def dead_letters(recipe: Recipe) -> int:
    """How many messages and records become dead letters."""
    streams = streams_of(recipe)
    bad = sum(min(s.bad, len(s.files)) for s in recipe.sources)
    strict = [s for s in recipe.steps if isinstance(s, Map) and s.strict]
    return bad + sum(m.n is None for s in strict for m in streams[s.inputs[0]].messages)


def streams_of(recipe: Recipe) -> list[Modelled]:
    """The messages of every stream."""
    streams = [_source(source, recipe.watched) for source in recipe.sources]
    for step in recipe.steps:
        inputs = recipe.step(step.inputs[0]).inputs if isinstance(step, Early | Late) else step.inputs
        streams.append(_computed(recipe, step, [streams[i] for i in inputs]))
    return streams


def _rows(messages: Sequence[Message], columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    def value(message: Message, column: str) -> Any:
        own = {"at": message.ts, "key": message.key, "n": message.n}
        return own[column] if column in own else message.extras[column]

    return Counter(tuple(value(m, c) for c in columns) for m in messages)


def _source(source: Source, watched: bool) -> Modelled:
    messages = tuple(Message(ts, key, n) for ts, key, n, _ in source.rows)
    clock = max((m.ts for m in messages), default=-END) - source.disorder_ms * 1000 if watched else END
    return Modelled(messages, clock)


def _computed(recipe: Recipe, step: Step, inputs: list[Modelled]) -> Modelled:
    clock = min(stream.clock for stream in inputs)
    messages = _messages(recipe, step, [stream.messages for stream in inputs])
    return Modelled(tuple(replace(m, due=-END) for m in messages if m.due <= clock), clock)


def _messages(  # noqa: C901 - one case for each kind of step
    recipe: Recipe, step: Step, inputs: list[tuple[Message, ...]]
) -> list[Message]:
    first = inputs[0]
    match step:
        case Sample():
            return [m for m in first if in_sample(m.n, step.percent, step.seed)]
        case Union(fills=True):
            more = [replace(m, n=None if m.n is None else m.n + 1) for m in first]
            return [replace(m, extras={}) for messages in (more, *inputs[1:]) for m in messages]
        case Filter() | Add() | Map() | FlatMap() | Log() | Repartition():
            return [made for message in first for made in _one_by_one(step, message)]
        case Union():
            return [replace(m, extras={}) for messages in inputs for m in messages]
        case Window():
            return _aggregated(step, recipe.key_type, first)
        case Early():  # the last result of a window has all of its messages
            window = recipe.step(step.inputs[0])
            assert isinstance(window, Window)
            return [replace(m, due=-END) for m in _aggregated(window, recipe.key_type, first)]
        case Top():
            return _largest(step, first)
        case Late():
            return [
                replace(m, extras={}) for m in late_of(first, is_loose=reads_loose(recipe, step.inputs[0]))
            ]
        case Deduplicate():
            return [_seen(step, m) for m in deduplicated(first, step.within_ms * 1000, exact=step.exact)]
        case Join():
            return joined(first, inputs[1], step.within_ms * 1000, step.how)
        case AsOfJoin():
            return as_of(first, inputs[1], keeps_all=step.how == "left")
        case Keyed(how="earlier"):
            return earlier_counts(first, step.span_ms * 1000)
        case Keyed():
            return pauses(first, step.span_ms)
        case Match():
            return matches(step, first)
        case TableJoin():
            return _with_table(step, first)
        case Task():
            return _by_task(step, first)
        case Persistent():
            return _by_persistent(step, first)
    raise AssertionError(step)


def _one_by_one(step: Step, m: Message) -> list[Message]:
    match step:
        case Filter(modulo=modulo, rest=rest):
            return [m] if m.n is not None and m.n % modulo != rest else []
        case Add(more=more):
            return [replace(m, n=None if m.n is None else m.n + more)]
        case Map(strict=strict, factor=factor):
            if m.n is None:
                return [] if strict else [replace(m, extras={})]
            return [replace(m, n=m.n * factor, extras={})]
        case FlatMap(most=most):
            return [Message(m.ts, m.key, m.n + i) for i in range(m.n % most)] if m.n is not None else []
        case _:
            return [m]


def _seen(step: Deduplicate, m: Message) -> Message:
    """The message, due when the clock has reached its time: then no earlier message of its key can come."""
    return Message(m.ts, m.key, m.n if step.exact else m.ts // 1000, m.ts)


# -- groups -------------------------------------------------------------------------------------------


def key_of(step: Window, key_type: str, key: Any) -> Any:
    """The key by which a window groups a message."""
    if step.by == "nothing" or key is None:
        return None
    if step.by == "key":
        return key
    return key[:1] if key_type == "string" else key % 2


def _aggregated(step: Window, key_type: str, messages: Sequence[Message]) -> list[Message]:
    grouped = [replace(m, key=key_of(step, key_type, m.key)) for m in messages]
    size, slide = step.size_ms * 1000, step.slide_ms * 1000
    match step.kind:
        case "session":
            windows = session_windows(grouped, size)
        case "everything":
            windows = everything_windows(grouped, END)
        case _:
            windows = sliding_windows(grouped, size, slide or size)
    made = []
    for (key, start, end), inside in windows.items():
        extras = {} if step.kind == "everything" else dict(zip(WINDOW, (start, end), strict=True))
        n, more = AGGREGATES[step.how](inside), {}
        if step.how == "several":
            known = [m.n for m in inside if m.n is not None]
            more = {"c": len(inside), "lo": min(known, default=None), "hi": max(known, default=None)}
        due = -END if step.kind == "everything" and step.emission == "accumulating" else end
        made.append(Message(_last_ms(end), key, n, due, {**extras, **more}))
    return made


def _largest(step: Top, messages: Sequence[Message]) -> list[Message]:
    """For each key and window, the messages with the largest n; of equal ones, the earlier ones."""
    size, slide = step.size_ms * 1000, step.slide_ms * 1000
    match step.kind:
        case "session":
            windows = session_windows(messages, size)
        case "everything":
            windows = everything_windows(messages, END)
        case _:
            windows = sliding_windows(messages, size, slide or size)
    made = []
    for (key, start, end), inside in windows.items():
        known = sorted((-m.n, m.ts) for m in inside if m.n is not None)
        for rank, (less, _) in enumerate(known[: step.most], 1):
            extras = {} if step.kind == "everything" else dict(zip(WINDOW, (start, end), strict=True))
            made.append(Message(_last_ms(end), key, -less, end, {**extras, "rank": rank}))
    return made


def _last_ms(end: int) -> int:
    """The last whole millisecond before a window's end; both in microseconds."""
    return (end - 1) // 1000 * 1000


def _known(inside: Sequence[Message]) -> list[int]:
    return [m.n for m in inside if m.n is not None]


def _sum(inside: Sequence[Message]) -> int | None:
    known = _known(inside)
    return sum(known) if known else None


def _median(inside: Sequence[Message]) -> int | None:
    known = sorted(_known(inside))
    if not known:
        return None
    return known[(len(known) - 1) // 2] + known[len(known) // 2]  # twice the median


def _mean(inside: Sequence[Message]) -> int | None:
    known = _known(inside)
    return sum(known) // len(known) if known else None


def _ratio(inside: Sequence[Message]) -> int | None:
    total = _sum(inside)
    return None if total is None else total // len(inside)


def _by_time(m: Message) -> tuple[int, bool, int]:
    """The order of `first` and `last`: by time, then by value, null first."""
    return m.ts, m.n is not None, m.n or 0


AGGREGATES: dict[str, Callable[[Sequence[Message]], int | None]] = {
    "sum": _sum,
    "several": _sum,
    "count": len,
    "tally": len,
    "counted": lambda inside: len(_known(inside)),
    "min": lambda inside: min(_known(inside), default=None),
    "max": lambda inside: max(_known(inside), default=None),
    "reduce": lambda inside: max(_known(inside), default=None),
    "top": lambda inside: max(_known(inside), default=None),
    "mean": _mean,
    "ratio": _ratio,
    "median": _median,
    "set": lambda inside: len(set(_known(inside))),
    "distinct": lambda inside: len(set(_known(inside))),
    "first": lambda inside: min(inside, key=_by_time).n,
    "last": lambda inside: max(inside, key=_by_time).n,
    "monoid": summed,
    "fold": summed,
}


# -- tables and Tasks -----------------------------------------------------------------------------------


def _with_table(step: TableJoin, messages: Sequence[Message]) -> list[Message]:
    made = []
    for m in messages:
        matches = [more for key, more in step.table if key is not None and key == m.key]
        if step.how in ("semi", "anti"):
            made += [Message(m.ts, m.key, m.n)] if bool(matches) == (step.how == "semi") else []
            continue
        for more in matches or ([0] if step.how == "left" else []):
            made += [Message(m.ts, m.key, None if m.n is None else m.n + more)]
    return made


def _by_task(step: Task, messages: Sequence[Message]) -> list[Message]:
    match step.how:
        case "each":
            return [Message(m.ts, m.key, None if m.n is None else m.n + 1) for m in messages]
        case "batch":
            return [Message(m.ts, m.key, m.n) for m in messages]
        case "outputs":
            return [Message(m.ts, m.key, m.n if m.n is None else m.n - m.n % 2) for m in messages]
        case "ticks":
            windows = sliding_windows(messages, 1_000_000, 1_000_000)
            return [Message(_last_ms(end), k, summed(inside), end) for (k, _, end), inside in windows.items()]
        case _:
            windows = everything_windows(messages, END)
            return [Message(END, key, summed(inside), END) for (key, _, _), inside in windows.items()]


def _by_persistent(step: Persistent, messages: Sequence[Message]) -> list[Message]:
    match step.how:
        case "each":
            return [Message(m.ts, m.key, m.n) for m in messages]
        case "timers":
            seconds = {(m.key, m.ts // SECOND * SECOND + SECOND) for m in messages}
            return [Message(at, key, at // SECOND % 7, at) for key, at in seconds]
        case "windows":
            windows = sliding_windows(messages, step.size_ms * 1000, step.size_ms * 1000)
            return [Message(_last_ms(end), k, _sum(inside), end) for (k, _, end), inside in windows.items()]
        case _:
            windows = everything_windows(messages, -END)
            return [Message(0, key, len(inside)) for (key, _, _), inside in windows.items()]


# -- messages that break the promise ----------------------------------------------------------------------


def reads_loose(recipe: Recipe, stream: int) -> bool:
    """Whether a stream has a window's results for messages that break the promise, or its late messages."""
    if stream < len(recipe.sources):
        return False
    step = recipe.step(stream)
    if isinstance(step, Late):
        return reads_loose(recipe, step.inputs[0])
    return isinstance(step, Window) and facts_of(recipe)[step.inputs[0]].loose


def _in_time(recipe: Recipe, stream: int) -> tuple[Message, ...]:
    """The stream, computed only from messages that keep the promised disorder."""
    kept = tuple(keeping(source) for source in recipe.sources)
    return streams_of(replace(recipe, sources=kept))[stream].messages


def keeping(source: Source) -> Source:
    """The source without the rows that are further behind the newest of their partition than it promises."""
    newest: dict[int, int] = {}
    files = []
    for file in source.files:
        rows = []
        for row in file:
            place = row[3] if source.places else 0
            newest[place] = max(newest.get(place, -END), row[0])
            if row[0] >= newest[place] - source.disorder_ms * 1000:
                rows.append(row)
        files.append(tuple(rows))
    return replace(source, files=tuple(files))
