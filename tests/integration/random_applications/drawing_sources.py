"""The sources of a recipe: messages with disorder, copies and odd values, and their division into files."""

from __future__ import annotations

import random
from typing import Any

from .program_sources import generated_key, is_written_in_json
from .recipe import KeyType, Row, Source
from .values import NAN

SPAN_US = 60_000_000
BASE_US = 1_700_000_000_000_000
ODD_BASES_US = (-40_000_000, -2_000_000_000_000_000)
"""Across the epoch, and 1906."""
FAR_US = BASE_US + 1_000 * SPAN_US
"""The time of the messages that move the clocks of endless inputs past everything else."""
DAY_MS = 86_400_000
KEYS: dict[str, list[Any]] = {
    "string": ["a", "b", "ä€", "", "[/x]", "[red]", 'q"uo,te', "a b"],
    "bigint": [0, 1, -1, 7, 2**62],
    "double": [0.0, 1.5, -2.0, float("inf")],
    "array<string>": [(), ("a",), ("a", "b")],
    "struct<a:bigint,b:string>": [(("a", 1), ("b", "x")), (("a", 2), ("b", None))],
}


def draw_keys(draw: random.Random, key_type: KeyType) -> list[Any]:
    """The few keys of a recipe, perhaps with null."""
    known = list(KEYS[key_type])
    if key_type == "double":
        known.append(NAN)
    return draw.sample(known, min(len(known), draw.randint(1, 4))) + ([None] if draw.random() < 0.3 else [])


def draw_sources(
    draw: random.Random, key_type: KeyType, keys: list[Any], *, watched: bool
) -> tuple[Source, ...]:
    """One or two sources over the same period."""
    bases = [BASE_US] * 6 + ([] if watched else list(ODD_BASES_US))
    base = draw.choice(bases)
    return tuple(_source(draw, key_type, keys, base, watched=watched) for _ in range(draw.choice([1, 1, 2])))


def _source(draw: random.Random, key_type: KeyType, keys: list[Any], base: int, *, watched: bool) -> Source:
    kinds: list[Any] = ["parquet", "parquet", "jsonl", *([] if watched else ["items", "generate"])]
    if not all(is_written_in_json(key) for key in keys):
        kinds = [kind for kind in kinds if kind != "jsonl"]
    if key_type in ("string", "bigint"):
        kinds += ["csv", "csv", "text", *(["socket"] if watched else [])]
    kind = draw.choice(kinds)
    if kind == "generate":
        return _generated(draw, key_type, base)
    disorders = [0, 0, 500, 3_000, 10_000, *([] if watched else [2 * DAY_MS])]
    disorder_ms = draw.choice(disorders)
    places = draw.choice([2, 3]) if kind != "text" and not watched and draw.random() < 0.15 else 0
    loose = not watched and not places and draw.random() < 0.15
    rows = _arriving(draw, keys, base, disorder_ms, places, loose=loose)
    if not rows:
        places, loose = 0, False
    if watched:
        rows += [(FAR_US, draw.choice(keys), 0, 0)]
    return Source(
        kind,
        _in_files(draw, rows, one=kind in ("items", "socket")),
        disorder_ms,
        places,
        packed=kind in ("csv", "jsonl", "text") and draw.random() < 0.2,
        bad=draw.randint(1, 2) if kind in ("csv", "jsonl") and draw.random() < 0.15 else 0,
        breaks_promise=loose,
    )


def _generated(draw: random.Random, key_type: KeyType, base: int) -> Source:
    step = draw.choice([1_000, 250_000, 1_500_000])
    rows = [(base + i * step, generated_key(key_type, i), i % 7, 0) for i in range(draw.randint(2, 40))]
    return Source("generate", (tuple(rows),))


def _arriving(
    draw: random.Random, keys: list[Any], base: int, disorder_ms: int, places: int, *, loose: bool
) -> list[Row]:
    """Rows in the order of arrival: in no partition is one later than the disorder allows, unless `loose`."""
    count = draw.choice([1, 5, 20, 40])
    if draw.random() < 0.15:
        count = 0
    step = draw.choice([1_000, 1_000, 1_000_000])
    if draw.random() < 0.25:
        step = 1
    rows: list[Row] = []
    for _ in range(count):
        ts = (base + draw.randrange(SPAN_US)) // step * step
        rows.append((ts, draw.choice(keys), _number(draw), draw.randrange(places) if places else 0))
    if rows and draw.random() < 0.3:
        rows += draw.choices(rows, k=len(rows) // 3 + 1)  # copies
    # A row that is delayed by at most the disorder is behind the newest by at most the disorder.
    delay_us = min(disorder_ms, 10_000) * 1_000
    lag = [0] * max(places, 1)
    if places:  # places may be far apart
        lag = [draw.choice([0, 20_000_000, 50_000_000]) for _ in range(places)]
    more = 15_000_000 if loose else 0
    arrival = [
        row[0] + lag[row[3]] + draw.randint(0, delay_us) + (more if draw.random() < 0.2 else 0)
        for row in rows
    ]
    return [rows[i] for i in sorted(range(len(rows)), key=lambda i: (arrival[i], i))]


def _number(draw: random.Random) -> int | None:
    if draw.random() < 0.05:
        return None
    return draw.choice([2**40, -(2**40)]) if draw.random() < 0.02 else draw.randint(-9, 30)


def _in_files(draw: random.Random, rows: list[Row], *, one: bool) -> tuple[tuple[Row, ...], ...]:
    if one or len(rows) < 2:
        return (tuple(rows),)
    count = min(len(rows) - 1, draw.choice([0, 1, 2, 3]))
    cuts = sorted(draw.sample(range(1, len(rows)), count))
    files = [tuple(rows[a:b]) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    if draw.random() < 0.2:
        files.insert(draw.randrange(len(files) + 1), ())
    return tuple(files)
