"""A random application as data: `program` writes it, `model` computes it and `shrinking` makes it smaller.

Streams have numbers: first the sources, then the steps. Every stream has the columns `key` and `n`, so that
any step can follow any other; some have extra ones (`extras_of`), which a sink takes and a step ignores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

KeyType = Literal["string", "bigint", "double", "array<string>", "struct<a:bigint,b:string>"]

Row = tuple[int, Any, int | None, int]
"""Event time in µs since the epoch, key, n, and the partition (place) that it comes from."""


@dataclass(frozen=True)
class Topic:
    """How the rows of a Kafka source are distributed: the place of a row is its partition."""

    count: Literal[1, 2] = 1
    """Over how many topics the partitions are spread, in turn."""
    keyed: bool = False
    """Whether keys are those of the messages, and not in their values."""
    stamped: bool = False
    """Whether the event time is Kafka's own timestamp."""
    idle_ms: int = 0
    """After how long a silent partition no longer holds the clock; 0: it always does."""
    sent: Literal["plainly", "committed", "after aborted"] = "plainly"
    """Whether each file is sent in a transaction, and whether an aborted one with the same messages
    precedes it."""


@dataclass(frozen=True)
class Source:
    """Files of rows in the order of arrival; `disorder_ms` is the disorder that the application declares.

    For a Kafka source, each file is sent after the one before, and the places are the partitions.
    """

    kind: Literal["parquet", "csv", "jsonl", "text", "items", "generate", "socket", "kafka"]
    files: tuple[tuple[Row, ...], ...]
    disorder_ms: int = 0
    places: int = 0
    """How many places with their own clocks the rows come from; 0: there is one clock."""
    packed: bool = False
    bad: int = 0
    """Records that cannot be read, one in each of the first files."""
    breaks_promise: bool = False
    """Whether some rows are further behind than `disorder_ms`."""
    topic: Topic = Topic()
    """The settings of a Kafka source."""

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for file in self.files for row in file)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A processor; `inputs` are numbers of streams."""

    inputs: tuple[int, ...]
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Filter(Step):
    how: Literal["column", "sql", "function"]
    modulo: int
    rest: int


@dataclass(frozen=True, kw_only=True)
class Add(Step):
    how: Literal["column", "sql", "function"]
    more: int


@dataclass(frozen=True, kw_only=True)
class Map(Step):
    """n becomes n · factor; `strict` raises if n is null, which makes such messages dead letters."""

    how: Literal["row", "tuple", "text"]
    factor: int
    strict: bool = False


@dataclass(frozen=True, kw_only=True)
class FlatMap(Step):
    """n mod `most` messages for each."""

    most: int


@dataclass(frozen=True, kw_only=True)
class Log(Step):
    pass


@dataclass(frozen=True, kw_only=True)
class Repartition(Step):
    tasks: int
    by_key: bool


@dataclass(frozen=True, kw_only=True)
class Sample(Step):
    """The messages selected by a hash of n and the seed; `percent` is their share."""

    percent: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Union(Step):
    """All messages of its inputs. `fills`: the first stream has a column that the others lack; it is added
    to n."""

    fills: bool = False


@dataclass(frozen=True, kw_only=True)
class Window(Step):
    """An aggregation over windows; sizes in ms. `how` is "tally" for a count that is computed in Python."""

    kind: Literal["tumbling", "sliding", "session", "everything"]
    how: str
    size_ms: int = 0
    slide_ms: int = 0
    by: Literal["key", "nothing", "expression", "function"] = "key"
    emission: Literal["discarding", "accumulating"] = "discarding"
    lateness_ms: int = 0
    as_sql: bool = False
    """Whether it is written as a statement in SQL."""


@dataclass(frozen=True, kw_only=True)
class Top(Step):
    """The messages of a key and window with the largest n."""

    kind: Literal["tumbling", "sliding", "session", "everything"]
    most: int
    size_ms: int = 0
    slide_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Late(Step):
    """The messages that came too late for the window that is its input."""


@dataclass(frozen=True, kw_only=True)
class Early(Step):
    """The counts so far of the window that is its input, after each batch or once in `every_ms`."""

    every_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Deduplicate(Step):
    """Deduplication by key within a span; `exact` also compares timestamp and n, and so finds copies of one
    message."""

    within_ms: int
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Join(Step):
    within_ms: int
    how: Literal["inner", "left", "right", "full"]


@dataclass(frozen=True, kw_only=True)
class AsOfJoin(Step):
    """Each message of the first stream with the newest one of its key in the second, up to its time."""

    how: Literal["inner", "left"]


@dataclass(frozen=True, kw_only=True)
class Keyed(Step):
    """A Task with typed states, in the order of event time.

    earlier: how many messages of the key came in the `span_ms` before each; pauses: the number of messages,
    when a key has had none for `span_ms`.
    """

    how: Literal["earlier", "pauses"]
    span_ms: int
    migrates: bool = False
    """Whether each life has its own version of the Task; versions keep numbers and text in turn."""


@dataclass(frozen=True, kw_only=True)
class Match(Step):
    """Sequences of messages of a key that begin with an n that 3 divides.

    pair: and a larger n; absent: and no n of rest 1; repeated: two or more such, and an n of rest 1.
    """

    how: Literal["pair", "absent", "repeated"]
    within_ms: int
    overlapping: bool = False


@dataclass(frozen=True, kw_only=True)
class TableJoin(Step):
    how: Literal["inner", "left", "semi", "anti"]
    table: tuple[tuple[Any, int], ...]
    refreshed: bool = False
    """Whether the rows come from a function that is called again at intervals."""


@dataclass(frozen=True, kw_only=True)
class Task(Step):
    """each, batch: stateless; outputs: all but even numbers go to a named output, and both are united again;
    ticks: sums of seconds when the clock passes them; totals: sums at the end.
    """

    how: Literal["each", "batch", "outputs", "ticks", "totals"]
    parallelism: int = 1


@dataclass(frozen=True, kw_only=True)
class Persistent(Step):
    """each: passes messages on; windows: sums; changes: counts so far; asked: counts, for `state`;
    timers: a timer at the end of each second that has messages.
    """

    how: Literal["each", "windows", "changes", "asked", "timers"]
    size_ms: int = 0


SinkKind = Literal[
    "parquet", "csv", "json", "text", "sqlite", "upsert", "batches", "memory", "console", "none",
    "postgresql", "mysql", "redis", "kafka",
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """The form in which a Kafka sink sends: the row as JSON, the same with a key, or the number as text
    with a key."""

    how: Literal["row", "row with key", "number with key"] = "row"
    guarantee: Literal["exactly once", "at least once"] = "exactly once"
    partitions: int = 1


@dataclass(frozen=True)
class Sink:
    """The end of stream number `stream`."""

    stream: int
    kind: SinkKind
    target: Target = Target()
    """The settings of a Kafka sink."""
    rolls: bool = False
    """Whether many batches become one file."""

    @property
    def is_narrow(self) -> bool:
        """Whether it gets key and n only."""
        if self.kind == "kafka":
            return self.target.how == "number with key"
        return self.kind in ("csv", "json", "text", "sqlite", "upsert", "postgresql", "mysql", "redis")


@dataclass(frozen=True)
class Recipe:
    """An application. `watched`: its inputs do not end, and it is stopped when its outputs are complete."""

    seed: int
    key_type: KeyType
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    watched: bool = False
    delivery: str = "exactly once"
    sets: tuple[tuple[str, str], ...] = ()
    """Keys of the configuration."""
    crashes: tuple[tuple[str, int], ...] = ()
    """Where each of the first runs dies: a crash point, and at which passage."""

    def step(self, stream: int) -> Step:
        """The step that makes a stream; the stream must not be a source."""
        return self.steps[stream - len(self.sources)]

    def source_of(self, stream: int) -> Source | None:
        return self.sources[stream] if stream < len(self.sources) else None

    @property
    def needs_kafka(self) -> bool:
        """Whether it runs only where there is a broker."""
        return any(end.kind == "kafka" for end in (*self.sources, *self.sinks))

    @property
    def numbers(self) -> range:
        """The numbers of all streams."""
        return range(len(self.sources) + len(self.steps))


@dataclass(frozen=True)
class Facts:
    """Which steps may follow a stream, and how its results are compared.

    `mode` is how what a sink holds is compared. `exact`: as it is; `running`: the last of each group counts;
    `added`: the results of a group are added up; `late`: with those of the window that it was too late for.
    """

    extras: tuple[str, ...] = ()
    timed: bool = True
    mode: Literal["exact", "running", "added", "late"] = "exact"
    loose: bool = False
    """Whether some messages break the promised disorder: then the results of windows depend on the batches.
    """
    is_end: bool = False
    """Whether only sinks may follow."""


WINDOW = ("window_start", "window_end")
SEVERAL = ("c", "lo", "hi")


def facts_of(recipe: Recipe) -> list[Facts]:
    """The facts of every stream."""
    found = [Facts(loose=s.breaks_promise) for s in recipe.sources]
    for step in recipe.steps:
        found.append(_after(step, [found[i] for i in step.inputs]))
    return found


def _after(step: Step, inputs: list[Facts]) -> Facts:
    match step:
        case Filter() | Log() | Repartition() | Add() | Sample():
            return inputs[0]
        case Map() | FlatMap() | Task(how="each" | "batch" | "outputs"):
            return replace(inputs[0], extras=())
        case Window():
            return _of_window(step, inputs[0])
        case Early():
            return replace(inputs[0], mode="running", is_end=True)
        case Top(kind="everything"):
            return Facts(("rank",), timed=False)
        case Top():
            return Facts((*WINDOW, "rank"))
        case Late():
            return Facts(mode="late", is_end=True)
        case TableJoin():
            return replace(inputs[0], extras=())
        case Task(how="totals"):
            return Facts(timed=False)
        case Persistent(how="changes"):
            return Facts(mode="running", timed=False, is_end=True)
        case Persistent(how="asked"):
            return Facts(timed=False, is_end=True)
        case _:
            return Facts(timed=all(i.timed for i in inputs))


def _of_window(step: Window, before: Facts) -> Facts:
    extras = (*(() if step.kind == "everything" else WINDOW), *(SEVERAL if step.how == "several" else ()))
    if step.kind == "everything":
        running = step.emission == "accumulating"
        return Facts(extras, timed=False, mode="running" if running else "exact", is_end=running)
    if before.loose:
        return Facts(extras, mode="running" if step.emission == "accumulating" else "added", is_end=True)
    return Facts(extras)


def group_of(facts: Facts) -> tuple[str, ...]:
    """The columns of a group, of which the last result counts or all results are added up."""
    return ("key", *(name for name in facts.extras if name in WINDOW))
