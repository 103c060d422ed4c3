"""The sources of a recipe as program text; the program writes their files when it is loaded first."""

from __future__ import annotations

import json
import math
from typing import Any

from .program_kafka import filling_lines, source_text
from .recipe import KeyType, Recipe, Row, Source
from .values import NAN, as_sql, instant, plain

ENDINGS = {"parquet": "parquet", "csv": "csv", "jsonl": "jsonl", "text": "txt"}
READERS = {"jsonl": "json"}
"""The functions of `sources` whose names differ from the kind of source."""
BAD_CSV = "no time,x,1,0"
ARROW = {
    "string": "pa.string()",
    "bigint": "pa.int64()",
    "double": "pa.float64()",
    "array<string>": "pa.list_(pa.string())",
    "struct<a:bigint,b:string>": 'pa.struct([("a", pa.int64()), ("b", pa.string())])',
}


SERVER = [
    "",
    "",
    "def serve(content):",
    '    server = socket.create_server(("127.0.0.1", 0))',
    "    held = []",
    "",
    "    def send():",
    "        while True:",
    "            held.append(server.accept()[0])",
    "            held[-1].sendall(content.encode())",
    "",
    "    threading.Thread(target=send, daemon=True).start()",
    "    return server.getsockname()[1]",
    "",
    "",
]


def file_names(source: Source) -> list[str]:
    """The names of a source's files, in order."""
    ending = ENDINGS[source.kind] + (".gz" if source.packed else "")
    return [f"{part:02}.{ending}" for part in range(len(source.files))]


def writer_lines(recipe: Recipe, i: int, source: Source) -> list[str]:
    """Write the inputs, unless they exist; a file gets its name when it is complete."""
    if source.kind in ("items", "generate"):
        return []
    if source.kind == "kafka":
        return filling_lines(i, source)
    if source.kind == "socket":
        return [*SERVER, f"port{i} = serve({_content(recipe.key_type, source, source.rows, bad=False)})"]
    lines = ["", f"FILES{i} = {{"]
    for name, rows in zip(file_names(source), source.files, strict=True):
        content = _content(recipe.key_type, source, rows, bad=int(name[:2]) < source.bad)
        lines.append(f"    {name!r}: {content},")
    lines += [
        "}",
        f'(HERE / "in{i}").mkdir(parents=True, exist_ok=True)',
        f"for name, content in FILES{i}.items():",
    ]
    lines += [
        f'    if not (HERE / "in{i}" / name).exists():',
        f'        part = HERE / "in{i}" / ("_" + name)',
    ]
    if source.kind == "parquet":
        schema = f'[("ts", pa.timestamp("us", "UTC")), ("key", {ARROW[recipe.key_type]}), '
        schema += '("n", pa.int64()), ("place", pa.int64())]'
        lines.append("        columns = [list(c) for c in zip(*content)] or [[], [], [], []]")
        lines.append(f"        schema = pa.schema({schema})")
        lines.append("        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema)]")
        lines.append("        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), part)")
    elif source.packed:
        lines.append("        part.write_bytes(gzip.compress(content.encode()))")
    else:
        lines.append("        part.write_bytes(content.encode())")
    lines += ["        part.rename(part.with_name(name))", ""]
    return lines


def _content(key_type: KeyType, source: Source, rows: tuple[Row, ...], *, bad: bool) -> str:
    match source.kind:
        case "parquet":
            return "[" + ", ".join(f"({ts}, {plain(key)}, {n}, {place})" for ts, key, n, place in rows) + "]"
        case "csv":
            lines = ["ts,key,n,place", *(BAD_CSV for _ in range(bad)), *map(_csv, rows)]
        case "jsonl":
            lines = [*("{" for _ in range(bad)), *(_json(key_type, row) for row in rows)]
        case _:
            lines = [_line(row) for row in rows]
    return repr("".join(f"{line}\n" for line in lines))


def _csv(row: Row) -> str:
    ts, key, n, place = row
    text = "" if key is None else '"' + key.replace('"', '""') + '"' if isinstance(key, str) else repr(key)
    return f"{instant(ts)},{text},{'' if n is None else n},{place}"


def _json(key_type: KeyType, row: Row) -> str:
    ts, key, n, place = row
    if key_type.startswith("struct") and key is not None:
        key = dict(key)
    return json.dumps({"ts": instant(ts), "key": key, "n": n, "place": place})


def _line(row: Row) -> str:
    ts, key, n, place = row
    return f"{ts}|{'' if n is None else n}|{place}|{'null' if key is None else key}"


def source_lines(recipe: Recipe, i: int, source: Source) -> list[str]:
    """Read a source and give its messages their timestamp; the stream has key and n."""
    schema = f'schema="ts timestamp, key {recipe.key_type}, n bigint, place bigint"'
    if source.kind == "generate":
        return [f"{_generated(recipe, i, source)}", f's{i} = s{i}.select("key", "n")']
    where = f'str(HERE / "in{i}")'
    is_kafka = source.kind == "kafka"
    options = ", watch=True" if recipe.watched and not is_kafka else ""
    options += ', on_bad_record="dead_letter"' if source.bad else ""
    time = "timestamp" if is_kafka and source.topic.stamped else "ts"
    is_typed = source.kind not in ("text", "socket")
    at_source = is_typed and (is_kafka or not source.places) and source.disorder_ms % 2_000 == 0
    if at_source:
        options += f', event_time="{time}", max_disorder="{source.disorder_ms} ms"'
    match source.kind:
        case "items":
            rows = ", ".join(f"(at({ts}), {plain(key)}, {n}, {place})" for ts, key, n, place in source.rows)
            made = f"sources.items([{rows}], {schema}{options})"
        case "text":
            made = f"sources.text({where}{options})"
        case "socket":
            made = f'sources.socket("127.0.0.1", port{i})'
        case "parquet":
            made = f"sources.parquet({where}{options})"
        case "kafka":
            made = source_text(recipe, i, source, options)
        case _:
            made = f"sources.{READERS.get(source.kind, source.kind)}({where}, {schema}{options})"
    lines = [f's{i} = app.read({made}, name="source{i}")']
    if source.kind in ("text", "socket"):
        lines.append(f"s{i} = s{i}.select({_parsed(recipe.key_type)})")
    if not at_source:
        is_told = source.places and not is_kafka  # a topic's partitions are known
        place = f', partition="place", partitions={source.places}' if is_told else ""
        lines.append(f's{i} = s{i}.event_time("{time}", max_disorder="{source.disorder_ms} ms"{place})')
    return [*lines, f's{i} = s{i}.select("key", "n")']


def _parsed(key_type: KeyType) -> str:
    parts = [f"split(value, '[|]', 4)[{i}]" for i in range(4)]
    key = (
        f"nullif({parts[3]}, 'null')"
        if key_type == "string"
        else f"cast(nullif({parts[3]}, 'null') as bigint)"
    )
    n = f"cast(nullif({parts[1]}, '') as bigint)"
    ts = f"timestamp_micros(cast({parts[0]} as bigint))"
    return f'ts="{ts}", key="{key}", n="{n}", place="cast({parts[2]} as bigint)"'


def _generated(recipe: Recipe, i: int, source: Source) -> str:
    (first, second), count = source.rows[:2], len(source.rows)
    columns = {"key": as_sql(recipe.key_type, "id % 3"), "n": "cast(id % 7 as bigint)"}
    times = f'start="{instant(first[0])}", every="{second[0] - first[0]} us"'
    made = f"sources.generate(rows={count}, {times}, columns={columns})"
    return f's{i} = app.read({made}, name="source{i}")'


def is_written_in_json(key: Any) -> bool:
    """Whether JSON can write a key: it has neither NaN nor infinity."""
    return key != NAN and not (isinstance(key, float) and math.isinf(key))


def generated_key(key_type: KeyType, i: int) -> Any:
    """The key of row `i` of a generated source, as `as_sql` computes it."""
    values: dict[str, Any] = {
        "string": f"k{i % 3}",
        "bigint": i % 3,
        "double": float(i % 3),
        "array<string>": (f"k{i % 3}",),
        "struct<a:bigint,b:string>": (("a", i % 3), ("b", "x")),
    }
    return values[key_type]
