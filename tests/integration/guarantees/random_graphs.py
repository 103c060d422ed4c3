"""Random applications of several fragments, and what they must give by one plain computation over all data.

A recipe is drawn from a seed: sources with disorder, and steps that each read one or two of the streams
before them. Every stream has the columns `key` and `n` and an event time, so that anything can follow
anything. `build` makes the application of a recipe; `expected` computes the same with loops over lists.

Also copied beside an application's file, where it runs in a process of its own.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from drivetrain import Application, Monoid, agg, sinks, sources, windows
from drivetrain.api.stream import Stream
from drivetrain.core.planner import plan
from drivetrain.errors import GraphError

BASE_MS = 1_700_000_000_000
SPAN_MS = 60_000
MOST_ROWS = 2_500
KEYS = "abc"
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])

Message = tuple[int, str, int]
"""Timestamp in ms, key, n."""
Result = tuple[Any, ...]


@dataclass(frozen=True)
class Source:
    """Messages as they come, cut into files; none is out of order by more than `disorder_ms`."""

    messages: tuple[Message, ...]
    disorder_ms: int
    cuts: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A processor: what it is, which streams it reads (numbers of sources and steps), and its figures."""

    kind: str
    inputs: tuple[int, ...]
    figures: tuple[Any, ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class Recipe:
    """An application; stream number i is a source if i is below their number, else a step."""

    seed: int
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sunk: tuple[int, ...] = field(default=())

    def told(self) -> str:
        """The recipe for a person who looks into a failure."""
        lines = [f"seed {self.seed}"]
        lines += [
            f"  {i}: source of {len(s.messages)} in {len(s.cuts) + 1} files, disorder {s.disorder_ms} ms"
            for i, s in enumerate(self.sources)
        ]
        lines += [
            f"  {i}: {s.kind}{s.figures} of {s.inputs}{', cut' if s.cut else ''}"
            for i, s in enumerate(self.steps, len(self.sources))
        ]
        return "\n".join([*lines, f"  sinks behind {self.sunk}"])


class Total(Monoid[Any, int]):
    """A sum in Python, so that windows also run the way of user-defined state."""

    def zero(self) -> int:
        """Nothing."""
        return 0

    def add(self, state: int, message: Any) -> int:
        """One more."""
        return state + int(message.n)

    def plus(self, left: int, right: int) -> int:
        """Both."""
        return left + right

    def result(self, state: int) -> int:
        """The sum."""
        return state


# -- drawing --------------------------------------------------------------------------------------------


def recipe_of(seed: int) -> Recipe:
    """The recipe of a seed: two to six fragments, results of a size that loops can compute."""
    draw = random.Random(seed)
    while True:
        made = _drawn(seed, draw)
        try:
            fragments = len(plan(build(made, Path("in"), Path("out")).graph()).fragments)
        except GraphError:
            continue  # a graph that Drivetrain refuses; the planner has tests of its own
        if 2 <= fragments <= 6 and all(len(stream) <= MOST_ROWS for stream in _streams(made)):
            return made


def _drawn(seed: int, draw: random.Random) -> Recipe:
    origins = tuple(_source(draw) for _ in range(draw.choice([1, 1, 2])))
    steps: list[Step] = []
    for _ in range(draw.randint(2, 7)):
        known = len(origins) + len(steps)
        steps.append(_step(draw, known))
    read = {i for step in steps for i in step.inputs}
    leaves = [i for i in range(len(origins) + len(steps)) if i not in read]
    inner = [i for i in sorted(read) if i >= len(origins)]
    more = [draw.choice(inner)] if inner and draw.random() < 0.3 else []
    return Recipe(seed, origins, tuple(steps), tuple(sorted({*leaves, *more})))


def _source(draw: random.Random) -> Source:
    disorder = draw.choice([0, 500, 3_000, 10_000])
    times = [BASE_MS + draw.randrange(SPAN_MS) for _ in range(draw.randint(60, 250))]
    if draw.random() < 0.3:
        times = [ts // 1000 * 1000 for ts in times]  # many at one instant, and at the ends of windows
    # Whoever comes later by at most the disorder is behind the newest by at most the disorder.
    coming = sorted((ts + draw.randint(0, disorder), i, ts) for i, ts in enumerate(times))
    messages = tuple((ts, draw.choice(KEYS), draw.randrange(10)) for _, _, ts in coming)
    cuts = sorted(draw.sample(range(1, len(messages)), draw.randint(1, 4)))
    return Source(messages, disorder, tuple(cuts))


def _step(draw: random.Random, known: int) -> Step:
    last = known - 1 if draw.random() < 0.7 else draw.randrange(known)
    cut = draw.random() < 0.2
    kind = draw.choice(
        ["filter", "picky", "add", "bump", "window", "window", "window", "total", "union", "join"]
    )
    match kind:
        case "filter" | "picky":
            modulo = draw.randint(2, 4)
            return Step(kind, (last,), (modulo, draw.randrange(modulo)), cut)
        case "add" | "bump":
            return Step(kind, (last,), (draw.randint(1, 5),), cut)
        case "window" | "total":
            return Step(kind, (last,), _window(draw), cut)
        case _ if known < 2:
            return Step("add", (last,), (1,), cut)
        case "union":
            return Step(kind, tuple(draw.sample(range(known), 2)), (), cut)
        case _:
            figures = (draw.choice([0, 200, 1_000]), draw.choice(["inner", "left"]))
            return Step("join", tuple(draw.sample(range(known), 2)), figures, cut)


def _window(draw: random.Random) -> tuple[str, int, int]:
    size = draw.choice([1_000, 5_000, 20_000])
    kind = draw.choice(["tumbling", "sliding", "session"])
    return (
        (kind, draw.choice([500, 1_000, 3_000]), 0)
        if kind == "session"
        else (kind, size, size if kind == "tumbling" else size // draw.choice([2, 4]))
    )


# -- as an application -------------------------------------------------------------------------------------


def write_inputs(recipe: Recipe, directory: Path) -> None:
    """Write what the sources have, a folder each."""
    for i, source in enumerate(recipe.sources):
        folder = directory / str(i)
        folder.mkdir(parents=True)
        for part, (start, end) in enumerate(
            zip((0, *source.cuts), (*source.cuts, len(source.messages)), strict=True)
        ):
            columns = list(zip(*source.messages[start:end], strict=True))
            arrays = [pa.array([us * 1000 for us in columns[0]], SCHEMA.field(0).type)]
            arrays += [pa.array(c, f.type) for c, f in zip(columns[1:], list(SCHEMA)[1:], strict=True)]
            pq.write_table(pa.table(arrays, SCHEMA), folder / f"{part:02}.parquet")


def build(recipe: Recipe, inputs: Path, output: Path) -> Application:
    """The application of a recipe."""
    app = Application(f"random-{recipe.seed}")
    streams: list[Stream[Any]] = []
    for i, source in enumerate(recipe.sources):
        read = app.read(sources.parquet(inputs / str(i)), name=f"source{i}")
        streams.append(read.event_time("ts", max_disorder=f"{source.disorder_ms} ms").select("key", "n"))
    for i, step in enumerate(recipe.steps, len(streams)):
        streams.append(_built(step, [streams[j] for j in step.inputs], f"step{i}"))
        if step.cut:
            streams[-1] = streams[-1].cut()
    for i in recipe.sunk:
        streams[i].sink(sinks.parquet(output / str(i)), name=f"sink{i}")
    return app


def _built(step: Step, inputs: list[Stream[Any]], name: str) -> Stream[Any]:
    first = inputs[0].select("key", "n")
    match step.kind, step.figures:
        case "filter", (modulo, rest):
            return first.filter(f"n % {modulo} <> {rest}", name=name)
        case "picky", (modulo, rest):
            return first.filter(_picky(modulo, rest), name=name)
        case "add", (more,):
            return first.with_columns(name, n=f"n + {more}")
        case "bump", (more,):
            return first.with_columns(name, n=_bump(more))
        case "window", (kind, size, slide):
            return first.group_by("key").window(_as_window(kind, size, slide)).aggregate(name, n=agg.sum("n"))
        case "total", (kind, size, slide):
            return first.group_by("key").window(_as_window(kind, size, slide)).aggregate(name, n=Total())
        case "union", _:
            return first.union(inputs[1].select("key", "n"), name=name)
        case "join", (within, how):
            right = inputs[1].select("key", m="n")
            joined = first.join(right, on="key", within=f"{within} ms", how=how, name=name)
            return joined.select("key", n="n + coalesce(m, 0)")
    raise AssertionError(f"no step is called {step.kind}")


def _as_window(kind: str, size: int, slide: int) -> windows.Window:
    if kind == "session":
        return windows.session(f"{size} ms")
    return windows.sliding(f"{size} ms", f"{slide} ms")


def _picky(modulo: int, rest: int) -> Callable[[Any], bool]:
    def picky(message: Any) -> bool:
        return int(message.n) % modulo != rest

    return picky


def _bump(more: int) -> Callable[[int], int]:
    def bump(n: int) -> int:
        return n + more

    return bump


def results(recipe: Recipe, output: Path) -> dict[int, Counter[Result]]:
    """What each sink holds."""
    return {i: Counter(_read(output / str(i))) for i in recipe.sunk}


def _read(directory: Path) -> list[Result]:
    files = sorted(str(p) for p in directory.glob("*.parquet")) if directory.is_dir() else []
    rows = ds.dataset(files).to_table().to_pylist() if files else []
    return [(r["key"], r["n"], *(_ms(r[c]) for c in ("window_start", "window_end") if c in r)) for r in rows]


def _ms(time: dt.datetime) -> int:
    return round((time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(milliseconds=1))


# -- as loops ------------------------------------------------------------------------------------------------


def expected(recipe: Recipe) -> dict[int, Counter[Result]]:
    """What each sink must hold."""
    streams = _streams(recipe)
    return {i: Counter((key, n, *window) for _, key, n, *window in streams[i]) for i in recipe.sunk}


def _streams(recipe: Recipe) -> list[list[tuple[Any, ...]]]:
    """The messages of every stream; those of windows have their start and end behind key and n."""
    streams: list[list[tuple[Any, ...]]] = [list(source.messages) for source in recipe.sources]
    for step in recipe.steps:
        inputs = [[message[:3] for message in streams[i]] for i in step.inputs]
        if any(len(messages) > MOST_ROWS for messages in inputs):
            streams.append(inputs[0])  # the recipe is dropped for its size
        else:
            streams.append(_computed(step, inputs))
    return streams


def _computed(step: Step, inputs: list[list[Message]]) -> list[tuple[Any, ...]]:
    messages = inputs[0]
    match step.kind, step.figures:
        case (("filter" | "picky"), (modulo, rest)):
            return [m for m in messages if m[2] % modulo != rest]
        case (("add" | "bump"), (more,)):
            return [(ts, key, n + more) for ts, key, n in messages]
        case (("window" | "total"), (kind, size, slide)):
            groups = _sessions(messages, size) if kind == "session" else _windows(messages, size, slide)
            return [
                (end - 1, key, sum(n for _, _, n in inside), start, end)
                for (key, start, end), inside in groups.items()
            ]
        case "union", _:
            return messages + inputs[1]
        case "join", (within, how):
            return _joined(messages, inputs[1], within, how)
    raise AssertionError(f"no step is called {step.kind}")


def _windows(messages: list[Message], size: int, slide: int) -> dict[tuple[str, int, int], list[Message]]:
    groups: dict[tuple[str, int, int], list[Message]] = defaultdict(list)
    for message in messages:
        start = message[0] // slide * slide
        while start + size > message[0]:
            groups[message[1], start, start + size].append(message)
            start -= slide
    return groups


def _sessions(messages: list[Message], gap: int) -> dict[tuple[str, int, int], list[Message]]:
    groups: dict[tuple[str, int, int], list[Message]] = {}
    for key in KEYS:
        run: list[Message] = []
        for message in sorted(m for m in messages if m[1] == key):
            if run and message[0] - run[-1][0] >= gap:
                groups[key, run[0][0], run[-1][0] + gap] = run
                run = []
            run.append(message)
        if run:
            groups[key, run[0][0], run[-1][0] + gap] = run
    return groups


def _joined(left: list[Message], right: list[Message], within: int, how: str) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for ts, key, n in left:
        matches = [(max(ts, t), key, n + m) for t, k, m in right if k == key and abs(ts - t) <= within]
        made += matches or ([(ts, key, n)] if how == "left" else [])
    return made
