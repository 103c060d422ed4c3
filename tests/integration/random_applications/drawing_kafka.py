"""Replaces some sources and sinks of a recipe by Kafka's.

This module draws from random numbers of its own, so all other recipes stay as they are. In a
topic, rows are in 1 to 3 partitions, each with a clock of its own. So rows that were sent in order may
arrive far apart: the partitions are read side by side.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from drivetrain.crash_points import CrashPoint

from .drawing_sources import BASE_US, FAR_US
from .program_sources import is_written_in_json
from .recipe import Facts, Recipe, Row, Sink, Source, Target, Topic, facts_of

SHARE = 0.25
"""The share of recipes whose sources or sinks may become Kafka's."""
FEW = "6"
"""The most messages of a batch: limited only by bytes, a whole topic would be one or two batches."""
MS = 1_000
TRANSACTION_POINTS = (CrashPoint.IN_TRANSACTION, CrashPoint.AFTER_TRANSACTION)


def with_kafka(recipe: Recipe) -> Recipe:
    """The recipe with Kafka's sources and sinks in some places, or unchanged."""
    draw = random.Random(f"kafka {recipe.seed}")
    if draw.random() >= SHARE:
        return recipe
    sources = tuple(_source(draw, recipe, source) for source in recipe.sources)
    spread = random.Random(f"topics {recipe.seed}")
    recipe = replace(recipe, sources=tuple(_spread(spread, source) for source in sources))
    facts = facts_of(recipe)
    if any(source.kind == "kafka" for source in sources) and spread.random() < 0.7:
        recipe = replace(recipe, sets=(*recipe.sets, ("run.max-batch-rows", FEW)))
    sinks = tuple(_sink(draw, recipe, sink, facts[sink.stream]) for sink in recipe.sinks)
    return in_transactions(replace(recipe, sinks=sinks), draw)


def in_transactions(recipe: Recipe, draw: random.Random) -> Recipe:
    """If a sink publishes in transactions, the first crash may be in one."""
    has_one = any(s.kind == "kafka" and s.target.guarantee == "exactly once" for s in recipe.sinks)
    if not has_one or not recipe.crashes or draw.random() < 0.5:
        return recipe
    point = (draw.choice(TRANSACTION_POINTS).value, draw.randint(1, 2))
    return replace(recipe, crashes=(point, *recipe.crashes[1:]))


def _source(draw: random.Random, recipe: Recipe, source: Source) -> Source:
    if draw.random() < 0.25 or not all(is_written_in_json(row[1]) for row in source.rows):
        return source
    topic = Topic(
        keyed=recipe.key_type == "string" and draw.random() < 0.5,
        stamped=all(row[0] >= BASE_US for row in source.rows) and draw.random() < 0.4,
        sent=draw.choice(["plainly", "plainly", "committed", "after aborted"]),
    )
    files = source.files
    if topic.stamped:
        files = tuple(tuple((ts // MS * MS, *rest) for ts, *rest in rows) for rows in files)
    places, files = _in_partitions(draw, source.places, files)
    if recipe.watched:
        topic, places, files = _ending(draw, topic, places, files)
    return replace(source, kind="kafka", files=files, places=places, packed=False, topic=topic)


def _spread(draw: random.Random, source: Source) -> Source:
    if source.kind != "kafka" or source.places < 2 or draw.random() < 0.6:
        return source
    return replace(source, topic=replace(source.topic, count=2))


def _in_partitions(
    draw: random.Random, places: int, files: tuple[tuple[Row, ...], ...]
) -> tuple[int, tuple[tuple[Row, ...], ...]]:
    """Distribute rows over partitions. Every part of the rows of one clock is in order, so they may be
    anywhere."""
    if places:
        return places, files
    places, count = draw.choice([1, 2, 2, 3]), sum(map(len, files))
    if draw.random() < 0.5:
        chosen = [draw.randrange(places) for _ in range(count)]
    else:  # the early ones in the first partition, the late ones in the last
        chosen = [number * places // count for number in range(count)]
    each = iter(chosen)
    return places, tuple(tuple((*row[:3], next(each)) for row in rows) for rows in files)


def _ending(
    draw: random.Random, topic: Topic, places: int, files: tuple[tuple[Row, ...], ...]
) -> tuple[Topic, int, tuple[tuple[Row, ...], ...]]:
    """A topic without an end: every partition moves its clock far ahead, except one that is silent and
    becomes idle.

    Marks of transactions are not messages: a partition that is about to deliver messages might count as
    silent.
    """
    has_far = {place for rows in files for ts, _, _, place in rows if ts == FAR_US}
    key = next(row[1] for rows in files for row in rows)
    more: Any = [(FAR_US, key, 0, place) for place in range(places) if place not in has_far]
    if draw.random() < 0.5:
        topic, places = replace(topic, idle_ms=draw.choice([500, 2_000]), sent="plainly"), places + 1
    return topic, places, (*files[:-1], (*files[-1], *more))


def _sink(draw: random.Random, recipe: Recipe, sink: Sink, facts: Facts) -> Sink:
    ways = ["row"] if recipe.key_type in ("string", "bigint", "array<string>") else []
    if recipe.key_type in ("string", "bigint"):
        is_narrow = facts.mode == "exact" or (facts.mode == "running" and not facts.extras)
        ways += ["row with key", *(["number with key"] if is_narrow else [])]
    if sink.kind in ("none", "upsert") or not ways or draw.random() < 0.4:
        return sink
    # If results are added up, one that is sent again would count twice.
    guarantees = ["exactly once", *(["at least once"] if facts.mode in ("exact", "running") else [])]
    how: Any = draw.choice(ways)
    guarantee: Any = draw.choice(guarantees)
    return replace(sink, kind="kafka", target=Target(how, guarantee, draw.randint(1, 3)))
