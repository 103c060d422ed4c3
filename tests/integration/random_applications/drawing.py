"""A recipe from a seed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from drivetrain.crash_points import CrashPoint

from .drawing_kafka import in_transactions, with_kafka
from .drawing_sources import draw_keys, draw_sources
from .model import streams_of
from .program_steps import AGGREGATES, EXPRESSIONS, PYTHON, PYTHON_AGGREGATES, SQL_AGGREGATES
from .recipe import (
    Add,
    AsOfJoin,
    Deduplicate,
    Early,
    Facts,
    Filter,
    FlatMap,
    Join,
    Keyed,
    KeyType,
    Late,
    Log,
    Map,
    Match,
    Persistent,
    Recipe,
    Repartition,
    Sample,
    Sink,
    Step,
    TableJoin,
    Task,
    Top,
    Union,
    Window,
    facts_of,
)

MOST_MESSAGES = 1_500
STATEFUL = Window | Top | Join | AsOfJoin | Deduplicate | Persistent | Keyed | Match
KEY_TYPES: tuple[KeyType, ...] = (
    "string",
    "string",
    "bigint",
    "double",
    "array<string>",
    "struct<a:bigint,b:string>",
)
BATCH_POINTS = (
    CrashPoint.BATCH_BEGINS,
    CrashPoint.BEFORE_SINK,
    CrashPoint.AFTER_SINK,
    CrashPoint.BEFORE_ENTRY,
    CrashPoint.AFTER_ENTRY,
    CrashPoint.BEFORE_COMMIT,
)
"""The points that a batch passes, at which an exception has the same effect as a killed process."""
CHECKPOINT_POINTS = (
    CrashPoint.BEFORE_SNAPSHOT,
    CrashPoint.AFTER_SNAPSHOT,
    CrashPoint.BEFORE_RECORD,
    CrashPoint.AFTER_RECORD,
    CrashPoint.BEFORE_PUBLICATION,
    CrashPoint.AFTER_PUBLICATION,
)
KILLED_POINTS = (
    *BATCH_POINTS,
    *CHECKPOINT_POINTS,
    CrashPoint.VERSION_NOTED,
    CrashPoint.BEFORE_FINISH,
    CrashPoint.AFTER_FINISH,
)
"""The points at which separate processes are killed: a run without changes passes them, and needs no Kafka.
"""
OF_CHANGES = (
    CrashPoint.BEFORE_VERSION,
    CrashPoint.AFTER_VERSION,
    CrashPoint.BEFORE_OUTCOME,
    CrashPoint.AFTER_OUTCOME,
    CrashPoint.CHANNEL_BEGINS,
    CrashPoint.CHANNEL_ENDS,
    CrashPoint.FRAGMENT_LEAVES,
)
"""The points of changes while an application runs, which no recipe makes."""


def recipe_of(seed: int) -> Recipe:
    """The recipe of a seed, small enough for the model's loops."""
    draw = random.Random(seed)
    while True:
        made = Drawing(seed, draw).drawn()
        if all(len(stream.messages) <= MOST_MESSAGES for stream in streams_of(made)):
            return with_kafka(made)


def killed_recipe_of(seed: int) -> Recipe:
    """A recipe of several fragments, to be killed in processes of their own at two of `KILLED_POINTS`."""
    draw = random.Random(f"killed {seed}")
    for number in range(10_000 * (seed + 1), 10_000 * (seed + 2)):
        made = recipe_of(number)
        stateful = sum(isinstance(step, STATEFUL) for step in made.steps)
        if stateful > 1 and not made.watched and sum(len(source.rows) for source in made.sources) > 20:
            break
    crashes = tuple(_death(draw) for _ in range(2))
    sinks = tuple(replace(s, kind="parquet") if s.kind == "memory" else s for s in made.sinks)
    sets = {**dict(made.sets), "run.max-batch-bytes": "2 KiB"}
    if any(point in CHECKPOINT_POINTS for point, _ in crashes):
        sets |= {"checkpoint.mode": "on", "checkpoint.interval": "200 ms"}
    made = replace(made, crashes=crashes, sinks=sinks, sets=tuple(sets.items()), delivery="exactly once")
    return in_transactions(made, random.Random(f"killed in transactions {seed}"))


def silent_recipe_of(seed: int) -> Recipe:
    """A recipe whose inputs do not end, with checkpoints on, to be killed at two points of a checkpoint."""
    draw = random.Random(f"silent {seed}")
    for number in range(10_000 * (seed + 1), 10_000 * (seed + 2)):
        made = recipe_of(number)
        is_waited_for = any(isinstance(step, STATEFUL) for step in made.steps)
        is_read_again = all(source.kind != "socket" for source in made.sources)
        if made.watched and is_waited_for and is_read_again and not made.needs_kafka:
            break
    crashes = tuple((draw.choice(CHECKPOINT_POINTS).value, draw.randint(1, 3)) for _ in range(2))
    sinks = tuple(replace(s, kind="parquet") if s.kind == "memory" else s for s in made.sinks)
    sets = {**dict(made.sets), "checkpoint.mode": "on", "checkpoint.interval": "200 ms"}
    return replace(made, crashes=crashes, sinks=sinks, sets=tuple(sets.items()), delivery="exactly once")


def _death(draw: random.Random) -> tuple[str, int]:
    """A point, and at which passage a process dies there: each fragment finishes only once."""
    point = draw.choice(KILLED_POINTS)
    most = 2 if point in (CrashPoint.BEFORE_FINISH, CrashPoint.AFTER_FINISH) else 4
    return point.value, draw.randint(1, most)


class Drawing:
    """One recipe under construction."""

    def __init__(self, seed: int, draw: random.Random) -> None:
        self.draw = draw
        self.key_type: KeyType = draw.choice(KEY_TYPES)
        self.keys = draw_keys(draw, self.key_type)
        watched = draw.random() < 0.15
        sources = draw_sources(draw, self.key_type, self.keys, watched=watched)
        self.recipe = Recipe(seed, self.key_type, sources, (), (), watched)
        self.facts: list[Facts] = facts_of(self.recipe)

    def drawn(self) -> Recipe:
        """The complete recipe."""
        for _ in range(self.draw.choice([1, 1, 2, 2, 3, 3, 4, 5])):
            step = self._step()
            if step is not None:
                self._add(step)
                if isinstance(step, Window) and self._is_loose(step) and self.draw.random() < 0.7:
                    self._add(Late(inputs=(len(self.facts) - 1,)))
                elif isinstance(step, Window) and self._has_early(step):
                    self._add(Early(inputs=(len(self.facts) - 1,), every_ms=300 if self._is_odd else 0))
        return self._figured(replace(self.recipe, sinks=self._sinks()))

    def _add(self, step: Step) -> None:
        self.recipe = replace(self.recipe, steps=(*self.recipe.steps, step))
        self.facts = facts_of(self.recipe)

    def _has_early(self, step: Window) -> bool:
        """Whether the early counts of a window are read, too."""
        counts = step.kind in ("tumbling", "sliding") and step.how in ("count", "counted")
        return counts and not step.as_sql and not self._is_loose(step)

    def _is_loose(self, step: Step) -> bool:
        return self.facts[step.inputs[0]].loose

    def _one_of(self, count: int) -> int:
        """A number below `count` that is not drawn, so that seeds keep the rest of their applications."""
        return (self.recipe.seed + len(self.facts)) % count

    @property
    def _is_odd(self) -> bool:
        return self._one_of(2) == 1

    # -- steps --------------------------------------------------------------------------------------

    def _step(self) -> Step | None:
        open_yet = [i for i, f in enumerate(self.facts) if not f.is_end]
        if not open_yet:
            return None
        first = open_yet[-1] if self.draw.random() < 0.7 else self.draw.choice(open_yet)
        cut = self.draw.random() < 0.15
        facts = self.facts[first]
        if facts.loose:
            return self._loose_window(first) if self.draw.random() < 0.6 else self._stateless(first, cut)
        kinds = [self._stateless, self._stateless, self._table_join, self._task]
        if facts.timed:
            kinds += [self._window, self._window, self._window, self._window, self._deduplicate]
            kinds += [self._pair, self._pair, self._persistent]
        elif not self.recipe.watched:
            kinds += [self._total]
        return self.draw.choice(kinds)(first, cut)

    def _stateless(self, first: int, cut: bool) -> Step | None:
        draw, into = self.draw, {"inputs": (first,), "cut": cut}
        how: Any = draw.choice(["column", "sql", "function"])
        match draw.choice(["filter", "add", "map", "flat_map", "log"]):
            case "filter":
                modulo = draw.randint(2, 4)
                return Filter(**into, how=how, modulo=modulo, rest=draw.randrange(modulo))
            case "add":
                return Add(**into, how=how, more=draw.randint(1, 5))
            case "map":
                ways = ["row", "tuple", "text"] if self.key_type in PYTHON else ["text"]
                strict = draw.random() < 0.25
                return Map(**into, how=draw.choice(ways), factor=draw.choice([-1, 2, 3]), strict=strict)
            case "flat_map":
                return FlatMap(**into, most=3)
            case _:
                if self._is_odd:
                    return Sample(inputs=(first,), cut=cut, percent=50, seed=self.recipe.seed)
                if self._one_of(4) == 2:
                    return Repartition(inputs=(first,), cut=cut, tasks=3, by_key=self._one_of(8) == 2)
                return Log(inputs=(first,))

    def _window(self, first: int, cut: bool) -> Step | None:
        draw = self.draw
        kinds = ["tumbling", "tumbling", "sliding", "session", "session"]
        kinds += [] if self.recipe.watched else ["everything"]
        kind: Any = draw.choice(kinds)
        by: Any = draw.choice(["key", "key", "key", "nothing", *(["expression"] if self._computes() else [])])
        if by == "expression" and draw.random() < 0.5:
            by = "function"
        how = self._how(kind)
        emission: Any = "discarding"
        lateness = 0
        if kind in ("tumbling", "sliding") and how in AGGREGATES and draw.random() < 0.25:
            emission = draw.choice(["discarding", "accumulating"])
            lateness = draw.choice([1_000, 30_000])
        if kind == "everything" and how == "count" and draw.random() < 0.5:
            emission = "accumulating"
        size = draw.choice([500, 1_000, 3_000] if kind == "session" else [1_000, 5_000, 20_000])
        slide = size // draw.choice([2, 4]) if kind == "sliding" else 0
        if how in ("top", "first", "min", "ratio") and by == "key" and not lateness and self._is_odd:
            size = 0 if kind == "everything" else size
            return Top(inputs=(first,), cut=cut, kind=kind, most=2, size_ms=size, slide_ms=slide)
        is_plain = by in ("key", "nothing") and emission == "discarding" and not lateness
        is_plain = is_plain and how in SQL_AGGREGATES and (by, kind) != ("nothing", "everything")
        return Window(
            inputs=(first,), cut=cut, kind=kind, how=how, by=by, emission=emission, lateness_ms=lateness,
            size_ms=0 if kind == "everything" else size, slide_ms=slide,
            as_sql=is_plain and self._one_of(2) == 1,
        )  # fmt: skip

    def _computes(self) -> bool:
        return self.key_type in EXPRESSIONS

    def _how(self, kind: str) -> str:
        ways = list(AGGREGATES)
        ways += [
            way for way in PYTHON_AGGREGATES for _ in range(3) if not (way == "fold" and kind == "session")
        ]
        if kind == "everything":
            ways += ["count"] * len(ways)
        return self.draw.choice(ways)

    def _total(self, first: int, cut: bool) -> Step:
        how = self.draw.choice(["sum", "max", "set", *PYTHON_AGGREGATES])
        return Window(inputs=(first,), cut=cut, kind="everything", how=how)

    def _loose_window(self, first: int) -> Step:
        """Counts by key, with late messages and perhaps some allowed lateness."""
        draw = self.draw
        size = draw.choice([1_000, 5_000])
        chosen = self._one_of(4)
        counts = Window(inputs=(first,), kind="tumbling", how="count", size_ms=size)
        if chosen % 2:
            counts = replace(counts, kind="sliding", slide_ms=size // 2)
        if draw.random() < 0.4:
            emission: Any = draw.choice(["discarding", "accumulating"])
            return replace(counts, emission=emission, lateness_ms=draw.choice([1_000, 5_000]))
        return replace(counts, how="tally") if chosen > 1 else counts

    def _deduplicate(self, first: int, cut: bool) -> Step | None:
        if self.draw.random() < 0.3:
            return Deduplicate(inputs=(first,), cut=cut, within_ms=10_000, exact=True)
        return Deduplicate(inputs=(first,), cut=cut, within_ms=self.draw.choice([300, 5_000]), exact=False)

    def _pair(self, first: int, cut: bool) -> Step | None:
        others = [i for i, f in enumerate(self.facts) if f.timed and not f.loose and not f.is_end]
        if len(others) < 2:
            return None
        second = self.draw.choice([i for i in others if i != first])
        if self.draw.random() < 0.5:
            return Union(inputs=(first, second), cut=cut, fills=self._is_odd)
        within = self.draw.choice([0, 200, 1_000])
        how = self.draw.choice(["inner", "left"])
        if how == "left":  # without another draw, so that seeds keep the rest of their applications
            how = ("left", "right", "full")[(self.recipe.seed + len(self.facts)) % 3]
        if self._one_of(2):
            return AsOfJoin(inputs=(first, second), cut=cut, how="inner" if how == "inner" else "left")
        return Join(inputs=(first, second), cut=cut, within_ms=within, how=how)

    def _table_join(self, first: int, cut: bool) -> Step:
        keys = [key for key in self.keys if key is not None]
        table = tuple(
            (self.draw.choice(keys), self.draw.randrange(10)) for _ in range(self.draw.randint(1, 4))
        )
        how: Any = self.draw.choice(["inner", "left"])
        if self._one_of(4) > 1:
            how = {"inner": "semi", "left": "anti"}[how]
        return TableJoin(inputs=(first,), cut=cut, how=how, table=table, refreshed=self._one_of(3) == 1)

    def _task(self, first: int, cut: bool) -> Step | None:
        ways = ["each", "batch"]
        ways += ["ticks"] if self.facts[first].timed else []
        ways += [] if self.recipe.watched else ["totals"]
        how: Any = self.draw.choice(ways)
        if how in ("each", "batch") and self._is_odd:
            how = "outputs"
        return Task(inputs=(first,), cut=cut, how=how, parallelism=self.draw.randint(1, 3))

    def _persistent(self, first: int, cut: bool) -> Step | None:
        ways = ["each", "windows", "changes", *([] if self.recipe.watched else ["asked"])]
        size = self.draw.choice([1_000, 5_000])
        how: Any = self.draw.choice(ways)
        if how in ("each", "windows") and self._is_odd:
            how = "timers"
        if how in ("windows", "timers") and self._one_of(3) == 1:
            kind: Any = "pauses" if how == "windows" else "earlier"
            return Keyed(inputs=(first,), cut=cut, how=kind, span_ms=size, migrates=self._is_odd)
        if how != "asked" and self._one_of(3) == 2 and self.key_type != "double":
            # Text decides among equal timestamps, and 0.0 is another text than -0.0.
            matched: Any = ("pair", "absent", "repeated")[self._one_of(9) // 3]
            overlapping = self._one_of(18) > 8
            return Match(inputs=(first,), cut=cut, how=matched, within_ms=size, overlapping=overlapping)
        return Persistent(inputs=(first,), cut=cut, how=how, size_ms=size)

    # -- the rest -------------------------------------------------------------------------------------

    def _sinks(self) -> tuple[Sink, ...]:
        steps, count = self.recipe.steps, len(self.facts)
        read = {i for s in steps for i in s.inputs}
        ends = [i for i in range(count) if i not in read]
        ends += [s.inputs[0] for s in steps if isinstance(s, Early | Late)]
        inner = [i for i in sorted(read) if i not in ends]
        ends += [self.draw.choice(inner)] if inner and self.draw.random() < 0.3 else []
        sinks = (Sink(i, self._server(self._sink_kind(i), i)) for i in sorted(set(ends)))
        return tuple(replace(sink, rolls=self._rolls(sink)) for sink in sinks)

    def _rolls(self, sink: Sink) -> bool:
        """Not drawn, so that seeds keep the rest of their applications."""
        return sink.kind in ("parquet", "csv", "json", "text") and (self.recipe.seed + sink.stream) % 3 == 0

    def _server(self, kind: Any, stream: int) -> Any:
        """The server for a sink of any kind; not drawn either."""
        kinds = ("postgresql", "mysql", "redis")
        return kinds[(self.recipe.seed + stream) % 3] if kind == "postgresql" else kind

    def _sink_kind(self, stream: int) -> Any:
        facts, draw = self.facts[stream], self.draw
        step = None if self.recipe.source_of(stream) else self.recipe.step(stream)
        if isinstance(step, Persistent) and step.how == "asked":
            return "none"
        kinds = ["parquet"] * 5 + ["memory", "memory", "batches"]
        if facts.mode == "exact" and self.key_type in ("string", "bigint"):
            kinds += ["csv", "json", "json", "text", "sqlite", "sqlite", "postgresql"]
        if facts.mode == "exact" and draw.random() < 0.1:
            kinds = ["console", "none"]
        if isinstance(step, Window) and step.kind == "everything" and self.key_type in ("string", "bigint"):
            kinds += ["upsert"] * 4 if step.emission == "accumulating" else []
        return draw.choice(kinds)

    def _figured(self, recipe: Recipe) -> Recipe:
        """Configuration, delivery and crashes."""
        draw = self.draw
        sets = {"run.max-batch-bytes": draw.choice(["1 KiB", "1 MiB"])}
        if draw.random() < 0.3:
            sets |= {"channel.window-messages": "25", "channel.window-batches": "2"}
        if draw.random() < 0.3:
            sets |= {"checkpoint.mode": "on", "checkpoint.interval": draw.choice(["100 ms", "1 s"])}
        crashes: tuple[tuple[str, int], ...] = ()
        delivery = "exactly once"
        is_replayable = all(source.kind != "socket" for source in recipe.sources)
        if draw.random() < 0.35 and is_replayable:
            times = [draw.randint(1, 8) for _ in range(draw.randint(1, 3))]
            crashes = tuple((draw.choice(BATCH_POINTS).value, time) for time in times)
        elif draw.random() < 0.2 and "checkpoint.mode" not in sets:
            delivery = draw.choice(["at least once", "at most once"])
        return replace(recipe, sets=tuple(sets.items()), crashes=crashes, delivery=delivery)
