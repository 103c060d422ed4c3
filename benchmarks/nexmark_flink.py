"""Nexmark's queries in Flink SQL, run in Flink's own environment on the files that everybody reads.

Windows, as in Flink's own benchmark of these queries, are its window functions; what is no window keeps its
result up to date, and such a result is written as changes (`debezium-json`), which are added up for the
comparison after the clock has stopped. Event time has milliseconds in Flink: what is compared to the
microsecond comes from a column beside it. Files are read in no order, so the watermark waits for longer than
the events last, as in `flink_sql_job`; states are in RocksDB, because those of the joins exceed the heap.

Called by `nexmark`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import peer_process, peers

IMPOSSIBLE = {"q6": "an aggregate over the last ten rows takes no rows that change"}
"""Why Flink SQL has no result."""

PACKAGES = (f"org.apache.flink:flink-sql-parquet:{peers.FLINK_VERSION}",)
IN_MS = "in-milliseconds"
"""A file in the work directory says that the sessions of q11 were made of times in ms."""

_RANKS = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}
_IN_TIME = "a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
_DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"


def _counted() -> str:
    columns = ["COUNT(*) AS bids"]
    columns += [f"COUNT(*) FILTER (WHERE {condition}) AS {rank}_bids" for rank, condition in _RANKS.items()]
    return ", ".join(columns)


def _statistics(*keys: str) -> str:
    columns = [_counted()]
    for what in ("bidder", "auction"):
        columns.append(f"CAST(COUNT(DISTINCT {what}) AS INT) AS {what}s")
        for rank, condition in _RANKS.items():
            counted = f"COUNT(DISTINCT {what}) FILTER (WHERE {condition})"
            columns.append(f"CAST({counted} AS INT) AS {rank}_{what}s")
    named = "".join(f"{key}, " for key in keys)
    return f"SELECT {named}{_DAY} AS `day`, {', '.join(columns)} FROM bids GROUP BY {named}{_DAY}"


_HOT = """
    SELECT auction, COUNT(*) AS n, window_start, window_end
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
"""

APPENDED = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bids",
    "q1": "SELECT auction, bidder, date_time, extra, price * CAST(0.908 AS DOUBLE) AS price FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction
        FROM auctions AS a JOIN persons AS p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q5": f"""
        SELECT h.window_end, h.auction, h.n FROM ({_HOT}) AS h JOIN (
          SELECT MAX(n) AS most, window_start, window_end FROM ({_HOT}) GROUP BY window_start, window_end
        ) AS m ON h.window_start = m.window_start AND h.window_end = m.window_end WHERE h.n >= m.most
    """,
    "q7": """
        SELECT window_end, auction, bidder, price, date_time FROM (
          SELECT *, ROW_NUMBER() OVER (
            PARTITION BY window_start, window_end ORDER BY price DESC, date_time ASC
          ) AS place FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        ) WHERE place = 1
    """,
    "q8": """
        SELECT p.id, p.name, p.window_start FROM (
          SELECT id, name, window_start, window_end
          FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(ts), INTERVAL '10' SECOND))
          GROUP BY id, name, window_start, window_end
        ) AS p JOIN (
          SELECT seller, window_start, window_end
          FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(ts), INTERVAL '10' SECOND))
          GROUP BY seller, window_start, window_end
        ) AS a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    "q14": """
        SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price,
          CASE WHEN EXTRACT(HOUR FROM date_time) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END AS `time`,
          CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c
        FROM bids WHERE price * CAST(0.908 AS DOUBLE) > 100000 AND price * CAST(0.908 AS DOUBLE) < 5000000
    """,
    "q20": f"""
        SELECT b.auction, b.bidder, b.price, b.date_time AS bid_at
        FROM bids AS b JOIN auctions AS a ON {_IN_TIME}
        WHERE a.category = 10
    """,
}
"""Queries whose result only grows: files of Parquet."""

CHANGED = {
    "q4": f"""
        SELECT category, AVG(CAST(final AS DOUBLE)) AS price FROM (
          SELECT a.id, a.category, MAX(b.price) AS final FROM auctions AS a JOIN bids AS b ON {_IN_TIME}
          GROUP BY a.id, a.category
        ) GROUP BY category
    """,
    "q9": f"""
        SELECT auction, seller, category, price, bidder FROM (
          SELECT a.id AS auction, a.seller, a.category, b.price, b.bidder, ROW_NUMBER() OVER (
            PARTITION BY a.id ORDER BY b.price DESC, b.bidder DESC
          ) AS place FROM auctions AS a JOIN bids AS b ON {_IN_TIME}
        ) WHERE place = 1
    """,
    "q15": _statistics(),
    "q16": _statistics("channel"),
    "q17": f"""
        SELECT auction, {_DAY} AS `day`, {_counted()}, MIN(price) AS lowest, MAX(price) AS highest,
          AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total
        FROM bids GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT bidder, auction, price, date_time FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place
          FROM bids
        ) WHERE place = 1
    """,
    "q19": """
        SELECT auction, CAST(place AS INT) AS `rank`, bidder, price, date_time FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time ASC) AS place
          FROM bids
        ) WHERE place <= 10
    """,
}
"""Queries whose result changes: files of JSON with each row that comes or goes."""

SESSIONS = """
    SELECT bidder, window_start, window_end, COUNT(*) AS bids
    FROM TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '9.999' SECOND(1, 3)))
    GROUP BY bidder, window_start, window_end
"""
"""q11: Flink joins sessions that touch, so the gap is a millisecond shorter."""


def missing() -> str | None:
    """Make Flink's environment if need be; why it is not there, or None."""
    return peers.flink_missing()


def run(query: str, warm: Path, measured: Path, work: Path) -> dict[str, float]:
    """Run a query on little data and then on all of `measured`; its result is in `work/out/QUERY/`."""
    import pyspark

    from drivetrain.spark.session.jars import fetch

    # Flink's reader of Parquet wants Hadoop's classes, which PySpark brings.
    spark_jars = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    jars = [*fetch(PACKAGES, {}), *sorted(spark_jars)]
    statement = {**APPENDED, **CHANGED, "q11": SESSIONS}[query]
    given = {
        "statement": statement,
        "changes": query in CHANGED,
        "jars": [f"file://{jar}" for jar in jars],
        "warm": str(warm),
        "measured": str(measured),
        "work": str(work),
    }
    figures = peer_process.run(peers.flink_command("nexmark_flink_job"), given)
    (work / "out" / query).mkdir(parents=True)
    (work / IN_MS).touch()
    _result(query, work / "flink-out").write_parquet(work / "out" / query / "part-0.parquet")
    return figures


def _result(query: str, out: Path) -> pl.DataFrame:
    """What Flink wrote, with the types and names that the others have."""
    if query in CHANGED:
        frame = pl.DataFrame(list(_added_up(out)), infer_schema_length=None)
    else:
        files = [file for file in out.glob("**/*") if file.is_file() and not file.name.startswith((".", "_"))]
        frame = pl.concat([pl.read_parquet(file) for file in sorted(files)])
    zoned = pl.Datetime("us", "UTC")
    for name, kind in frame.schema.items():
        if name in ("date_time", "bid_at", "window_start", "window_end"):
            if kind == pl.String:
                frame = frame.with_columns(
                    pl.col(name).str.to_datetime("%+", time_zone="UTC", time_unit="us")
                )
            elif isinstance(kind, pl.Datetime) and kind.time_zone is None:
                frame = frame.with_columns(pl.col(name).dt.cast_time_unit("us").dt.replace_time_zone("UTC"))
            frame = frame.with_columns(pl.col(name).cast(zoned))
    if query == "q11":
        frame = frame.with_columns(window_end=pl.col("window_end") + pl.duration(milliseconds=1))
    return frame


def _added_up(out: Path) -> Iterator[dict[str, Any]]:
    """The rows that came and did not go."""
    rows: Counter[str] = Counter()
    for file in out.glob("**/*"):
        if file.is_file():
            for line in file.read_text().splitlines():
                change = json.loads(line)
                if change["op"] == "c":
                    rows[json.dumps(change["after"], sort_keys=True)] += 1
                else:
                    rows[json.dumps(change["before"], sort_keys=True)] -= 1
    for row, count in rows.items():
        if count not in (0, 1):
            raise ValueError(f"a row came {count} times more often than it went: {row}")
        if count:
            yield json.loads(row)
