"""Compares the contents of an application's sinks with those that the model computes."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds

from drivetrain.connectors.in_process.memory_sink import collected

from .model import Expected, expected
from .program import DATABASE, MYSQL, REDIS
from .recipe import Facts, Late, Recipe, Window, facts_of, group_of
from .topics import rows_of_topic
from .values import same

Rows = Counter[tuple[Any, ...]]
UNCHECKED = ("console", "none")


def differences(recipe: Recipe, home: Path) -> list[str]:
    """The errors in the sinks of an application that ran in `home`, one or more lines for each sink."""
    facts, wrong = facts_of(recipe), []
    found = {j: found_rows(recipe, home, j) for j, s in enumerate(recipe.sinks) if s.kind not in UNCHECKED}
    wanted = expected(recipe)
    for j, rows in found.items():
        sink, columns = recipe.sinks[j], columns_of(recipe, j, wanted[j])
        said = _compared(recipe, j, rows, wanted[j], columns)
        if said:
            mode = facts[sink.stream].mode
            wrong.append(
                f"sink {j} ({sink.kind}) of stream {sink.stream}, {mode}, columns {columns}:\n{said}"
            )
    wrong += _without_the_late(recipe, wanted, found)
    return wrong


def columns_of(recipe: Recipe, j: int, wanted: Expected) -> tuple[str, ...]:
    """The columns in which a sink is compared."""
    return ("key", "n") if recipe.sinks[j].is_narrow else wanted.columns


def _compared(recipe: Recipe, j: int, found: Rows, wanted: Expected, columns: tuple[str, ...]) -> str:
    sink = recipe.sinks[j]
    facts = facts_of(recipe)[sink.stream]
    rows = _projected(wanted.rows, wanted.columns, columns)
    if wanted.least is not None:
        return _between(found, rows, _projected(wanted.least, wanted.columns, columns), facts, columns)
    if sink.kind == "upsert":
        rows = Counter({row: 1 for row in rows if row[0] is not None})
    if facts.mode == "running" and sink.kind != "upsert":
        found, rows = _newest(found, columns, facts), _newest(rows, columns, facts)
    if sink.kind == "kafka" and sink.target.guarantee == "at least once" and recipe.crashes:
        again = Counter({row: times for row, times in found.items() if row in rows})
        return _difference_text(rows - found, found - again, rows)
    return _difference_text(rows - found, found - rows, rows)


def _between(found: Rows, most: Rows, least: Rows, facts: Any, columns: tuple[str, ...]) -> str:
    """The difference unless all rows that keep the promise are there, and no others but late messages."""
    if facts.mode == "late":  # never more than those that break the promise
        extra = found - (most - least)
        return _difference_text(Counter(), extra, most - least)
    groups = [_by_group(rows, columns, facts) for rows in (least, found, most)]
    wrong = [
        f"  {group}: {groups[1][group]} of {groups[0][group]} to {groups[2][group]}"
        for group in {**groups[0], **groups[1]}
        if not groups[0][group] <= groups[1][group] <= groups[2][group]
    ]
    return "\n".join(wrong[:10])


def _by_group(rows: Rows, columns: tuple[str, ...], facts: Any) -> Counter[tuple[Any, ...]]:
    """The counts of each group: added up, or the largest of those that followed each other."""
    made: Counter[tuple[Any, ...]] = Counter()
    for row, times in rows.items():
        group = tuple(row[columns.index(c)] for c in group_of(facts) if c in columns)
        n = row[columns.index("n")]
        made[group] = max(made[group], n) if facts.mode == "running" else made[group] + n * times
    return made


def _without_the_late(recipe: Recipe, wanted: list[Expected], found: dict[int, Rows]) -> list[str]:
    """A message goes either to the window or to `late`, and always to one of them."""
    facts, wrong = facts_of(recipe), []
    for j, sink in enumerate(recipe.sinks):
        step = None if recipe.source_of(sink.stream) else recipe.step(sink.stream)
        if not isinstance(step, Late) or j not in found or columns_of(recipe, j, wanted[j])[0] != "at":
            continue
        window = recipe.step(step.inputs[0])
        assert isinstance(window, Window)
        late = _late_by_window(window, found[j])
        for other, its_sink in enumerate(recipe.sinks):
            columns = columns_of(recipe, other, wanted[other])
            if its_sink.stream != step.inputs[0] or other not in found or "window_start" not in columns:
                continue
            its = facts[its_sink.stream]
            most, least = wanted[other].rows, wanted[other].least
            if least is None:
                continue
            all_of_it, had = _by_group(most, columns, its), _by_group(found[other], columns, its)
            for group in all_of_it:
                got = had[group] + late[group]
                # A message that is late for some of its sliding windows still goes to the others.
                if got > all_of_it[group] or (got < all_of_it[group] and not window.slide_ms):
                    told = f"{had[group]} in the window, {late[group]} late, of {all_of_it[group]}"
                    wrong.append(f"sinks {other} and {j}: of {group} {told}")
    return wrong[:10]


def _late_by_window(window: Window, late: Rows) -> Counter[tuple[Any, int, int]]:
    """How many late messages each window would have had, by key, start and end in µs."""
    size, slide = window.size_ms * 1000, (window.slide_ms or window.size_ms) * 1000
    counts: Counter[tuple[Any, int, int]] = Counter()
    for (at, key, _), times in late.items():
        for start in range(at // slide * slide, at - size, -slide):
            counts[key, start, start + size] += times
    return counts


def _newest(rows: Rows, columns: tuple[str, ...], facts: Facts) -> Rows:
    """Of each group the largest count: running counts only grow."""
    newest: dict[Any, tuple[Any, ...]] = {}
    n = columns.index("n")
    for row in rows:
        group = tuple(row[columns.index(c)] for c in group_of(facts) if c in columns)
        if group not in newest or newest[group][n] < row[n]:
            newest[group] = row
    return Counter(newest.values())


def _projected(rows: Rows, known: tuple[str, ...], columns: tuple[str, ...]) -> Rows:
    made: Rows = Counter()
    for row, times in rows.items():
        made[tuple(row[known.index(c)] for c in columns)] += times
    return made


def _difference_text(missing: Rows, extra: Rows, wanted: Rows) -> str:
    if not missing and not extra:
        return ""
    lines = [f"  {missing.total()} missing, {extra.total()} too many, of {wanted.total()}"]
    lines += [f"  missing {row}{f' × {n}' if n > 1 else ''}" for row, n in list(missing.items())[:6]]
    lines += [f"  too many {row}{f' × {n}' if n > 1 else ''}" for row, n in list(extra.items())[:6]]
    return "\n".join(lines)


# -- reading ----------------------------------------------------------------------------------------


def found_rows(recipe: Recipe, home: Path, j: int) -> Rows:
    """The rows of sink `j`, in the columns that are compared."""
    sink, facts = recipe.sinks[j], facts_of(recipe)[recipe.sinks[j].stream]
    wide = ("at", "key", "n", *facts.extras) if facts.timed else ("key", "n", *facts.extras)
    columns = ("key", "n") if sink.is_narrow else wide
    return Counter(tuple(same(row[c]) for c in columns) for row in _read(recipe, home, j))


def _read(recipe: Recipe, home: Path, j: int) -> Iterable[Mapping[str, Any]]:
    sink, folder = recipe.sinks[j], home / "out" / str(j)
    match sink.kind:
        case "memory":
            return _of_table(collected(f"{home.name}-{j}"))
        case "batches":  # a batch that ran again replaced its earlier results
            return [
                row
                for file in home.glob(f"taken-{j}-*.parquet")
                for row in _of_table(ds.dataset(file).to_table())
            ]
        case "sqlite" | "upsert":
            return _of_sqlite(home / "out.db", f"t{j}")
        case "postgresql":
            return _of_postgresql(f"{home.name}-{j}")
        case "mysql":
            return _of_mysql(f"{home.name}-{j}")
        case "redis":
            return _of_redis(f"{home.name}-{j}", recipe.key_type)
        case "kafka":
            return rows_of_topic(f"{home.name}-{j}", sink.target, recipe.key_type)
        case "csv":
            return [row for file in sorted(folder.glob("part-*")) for row in _of_csv(file)]
        case "json":
            return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in _lines(file)]
        case "text":
            return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in _lines(file)]
        case _:
            files = [str(file) for file in sorted(folder.glob("part-*"))]
            return _of_table(ds.dataset(files).to_table()) if files else []


def _of_table(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


def _of_sqlite(file: Path, table: str) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    with sqlite3.connect(file) as db:
        if not db.execute("select 1 from sqlite_master where name = ?", (table,)).fetchone():
            return []
        return [{"key": key, "n": n} for key, n in db.execute(f'select "key", "n" from "{table}"')]


def _of_postgresql(table: str) -> list[dict[str, Any]]:
    import psycopg

    with psycopg.connect(os.environ[DATABASE]) as db:
        if not db.execute("select 1 from pg_tables where tablename = %s", (table,)).fetchone():
            return []
        return [{"key": key, "n": n} for key, n in db.execute(f'select key, n from "{table}"')]


def _of_mysql(table: str) -> list[dict[str, Any]]:
    import pymysql

    at = urlsplit(os.environ[MYSQL])
    with (
        pymysql.connect(
            host=at.hostname, port=at.port, user=at.username, password=at.password, database=at.path[1:]
        ) as db,
        db.cursor() as cursor,
    ):
        cursor.execute("select 1 from information_schema.tables where table_name = %s", (table,))
        if not cursor.fetchone():
            return []
        cursor.execute(f"select `key`, n from `{table}`")
        return [{"key": key, "n": n} for key, n in cursor.fetchall()]


def _of_redis(stream: str, key_type: str) -> list[dict[str, Any]]:
    import redis

    kind = int if key_type == "bigint" else str

    def row(fields: Mapping[str, str]) -> dict[str, Any]:
        key, n = fields.get("key"), fields.get("n")
        return {"key": None if key is None else kind(key), "n": None if n is None else int(n)}

    with redis.Redis.from_url(os.environ[REDIS], decode_responses=True) as server:
        return [row(fields) for _, fields in server.xrange(stream)]


def _of_csv(file: Path) -> list[dict[str, Any]]:
    options = pa_csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
        column_types={"n": pa.int64()},
    )
    return _of_table(pa_csv.read_csv(file, convert_options=options))


def _lines(file: Path) -> list[str]:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return content.decode().splitlines()
