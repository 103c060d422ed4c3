"""A recipe as the text of an application, which writes its own inputs, and runs with `drivetrain run`."""

from __future__ import annotations

from .program_kafka import prelude_lines, sink_text
from .program_sources import source_lines, writer_lines
from .program_steps import step_lines
from .recipe import Facts, Recipe, Sink, facts_of

DATABASE = "RANDOM_APPLICATIONS_DATABASE"
"""The environment variable with the address of a PostgreSQL database."""
MYSQL = "RANDOM_APPLICATIONS_MYSQL"
"""The environment variable with the address of a MariaDB database."""
REDIS = "RANDOM_APPLICATIONS_REDIS"
"""The environment variable with the address of a Redis server."""
LIFE = "RANDOM_APPLICATIONS_LIFE"
"""The environment variable with the number of a life, which is the version of Tasks that migrate."""
HEAD = '''"""Random application {seed}. It writes its inputs beside itself; run it with:

drivetrain run FILE{sets}
"""

import gzip
import json
import os
import socket
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from drivetrain import Application, F, KeyedTask, ListState, MapState, Monoid, PersistentTask
from drivetrain import NamedOutput, State, Task, TimestampedValue, ValueState
from drivetrain import agg, col, lit, partitioners, patterns, sinks, sources, timestamp, windows

HERE = Path(__file__).with_suffix("")
LIFE = int(os.environ.get("{life}", "1"))


def at(us):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)

'''


def program_of(recipe: Recipe) -> str:
    """The application as a program; environment variables name the database and the broker."""
    facts = facts_of(recipe)
    sets = "".join(f' --set {key}="{value}"' for key, value in recipe.sets)
    lines = [HEAD.format(seed=recipe.seed, sets=sets, life=LIFE), *prelude_lines(recipe)]
    for i, source in enumerate(recipe.sources):
        lines += writer_lines(recipe, i, source)
    lines.append(f'app = Application("random-{recipe.seed}", delivery="{recipe.delivery}")')
    for i, source in enumerate(recipe.sources):
        lines += source_lines(recipe, i, source)
    for i, step in enumerate(recipe.steps, len(recipe.sources)):
        lines += step_lines(recipe, facts, i, step)
        if step.cut:
            lines.append(f"s{i} = s{i}.cut()")
    for j, sink in enumerate(recipe.sinks):
        lines += _sink_lines(j, sink, facts[sink.stream])
    return "\n".join(lines) + "\n"


def _sink_lines(j: int, sink: Sink, facts: Facts) -> list[str]:
    rolls = ', roll=("2 KiB", "1 s")' if sink.rolls else ""
    stream, path = f"s{sink.stream}", f'str(HERE / "out" / "{j}"){rolls}'
    end = f'name="sink{j}")'
    if facts.timed and sink.kind in ("parquet", "memory", "batches"):
        stream += ".with_columns(at=timestamp())"
    match sink.kind:
        case "text":
            line = f"{stream}.select(value=\"to_json(struct(key, n), map('ignoreNullFields', 'false'))\")"
            return [f"{line}.sink(sinks.text({path}), {end}"]
        case "csv" | "json":
            return [f'{stream}.select("key", "n").sink(sinks.{sink.kind}({path}), {end}']
        case "sqlite":
            return [f'{stream}.select("key", "n").sink(sinks.sqlite(str(HERE / "out.db"), "t{j}"), {end}']
        case "postgresql" | "mysql":
            address = DATABASE if sink.kind == "postgresql" else MYSQL
            table = f'sinks.{sink.kind}("${{{address}}}", f"{{HERE.name}}-{j}")'
            return [f'{stream}.select("key", "n").sink({table}, {end}']
        case "redis":  # an entry needs a value
            entries = f'sinks.redis("${{{REDIS}}}", stream=f"{{HERE.name}}-{j}")'
            return [f'{stream}.select("key", "n", one="1").sink({entries}, {end}']
        case "kafka":
            return [f"{stream}{sink_text(j, sink, facts)}, {end}"]
        case "upsert":
            table = f'sinks.sqlite(str(HERE / "out.db"), "t{j}", mode="upsert", key=["key"])'
            return [f'{stream}.filter("key is not null").select("key", "n").sink({table}, {end}']
        case "memory":
            return [f'{stream}.sink(sinks.memory(f"{{HERE.name}}-{j}"), {end}']
        case "batches":
            return [*_function_sink(j), f"{stream}.sink(sinks.batches(take{j}), {end}"]
        case "console" | "none":
            return [f"{stream}.sink(sinks.{sink.kind}(), {end}"]
        case _:
            return [f"{stream}.sink(sinks.parquet({path}), {end}"]


def _function_sink(j: int) -> list[str]:
    return [
        "",
        "",
        f"def take{j}(table, batch_id):",
        "    HERE.mkdir(exist_ok=True)",
        f'    pq.write_table(table, HERE / "taken-{j}-{{}}.parquet".format(batch_id))',
        "",
        "",
    ]
