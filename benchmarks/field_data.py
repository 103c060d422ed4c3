"""The data of the field's own jobs: JSON lines as in `data`, and the answers of one batch query in Polars.

- *clicks*, for session windows: 10,000 keys, so that sessions with a gap of five seconds have twelve events
  on average. Timestamps are whole hundredths of a second and the gap is 5,005 ms, so that no event comes
  exactly one gap after another: engines differ in whether it belongs to the session.
- *orders* and *payments*, for a join within ten seconds: each payment is for one of the orders, drawn at
  random, so that an order has none, one or several. It comes four seconds later on average, and one of
  twelve too late. Their timestamps end in 0 and in 5 ms, so that no two are exactly ten seconds apart.

All arrive up to five seconds after the moment they tell of, 5,000 a second, in files of 500,000.

Called by `field_sessions` and `field_join`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data

USERS = 10_000
GAP_MS = 5_005
WITHIN_MS = 10_000
PAID_AFTER_MS = 4_000
"""How long after its order a payment is made, on average."""
_STEP_MS = 10


def clicks(count: int) -> Path:
    """The directory of `lines/` with files of `count` events, and `expected.parquet` with their sessions."""
    return data.made(f"clicks-{count}", lambda directory: _write_clicks(directory, count))


def orders(count: int) -> Path:
    """The directory of `lines/` with files of `count` orders."""
    return data.made(f"orders-{count}", lambda directory: _write(directory, *_orders(count)))


def payments(count: int) -> Path:
    """The directory of `lines/` with files of `count` payments for the orders, and `expected.parquet`."""
    return data.made(f"payments-{count}", lambda directory: _write_payments(directory, count))


def sessions(events: pl.DataFrame, gap_ms: int = GAP_MS) -> pl.DataFrame:
    """The sessions of events (`ts_ms`, `key`, `value`): those of a key less than the gap apart."""
    begins = pl.col("ts_ms").diff().fill_null(gap_ms).ge(gap_ms)
    numbered = events.sort("key", "ts_ms").with_columns(number=begins.cum_sum().over("key"))
    grouped = numbered.group_by("key", "number").agg(
        start_ms=pl.col("ts_ms").min(),
        end_ms=pl.col("ts_ms").max() + gap_ms,
        n=pl.len().cast(pl.Int64),
        total=pl.col("value").sum(),
    )
    return grouped.select("start_ms", "end_ms", "key", "n", "total")


def joined(orders: pl.DataFrame, payments: pl.DataFrame, within_ms: int = WITHIN_MS) -> pl.DataFrame:
    """Payments with the amount of their order, if the two are at most `within_ms` apart."""
    pairs = payments.join(orders, on="key", suffix="_order")
    apart_ms = (pl.col("ts_ms") - pl.col("ts_ms_order")).abs()
    return pairs.filter(apart_ms <= within_ms).select(payment="value", key="key", amount="value_order")


# -- drawn -------------------------------------------------------------------------------------------


def _write_clicks(directory: Path, count: int) -> None:
    rng = np.random.default_rng(data.SEED + 3)
    ts_ms = _before(_arrivals_ms(count, data.EVENTS_PER_S), rng)
    keys = [f"u{n:04}" for n in rng.integers(0, USERS, count)]
    events = _events(ts_ms, keys, rng.integers(0, 10_000, count))
    _write(directory, events, np.arange(count))
    pq.write_table(sessions(events).to_arrow(), directory / "expected.parquet")


def _write_payments(directory: Path, count: int) -> None:
    ordered, _ = _orders(count)
    rng = np.random.default_rng(data.SEED + 5)
    order = rng.integers(0, count, count)
    after_ms = rng.exponential(PAID_AFTER_MS, count).astype(np.int64) // _STEP_MS * _STEP_MS + _STEP_MS // 2
    ts_ms = ordered["ts_ms"].to_numpy()[order] + after_ms
    arrival = np.argsort(ts_ms + rng.integers(0, data.DISORDER_MS, count), kind="stable")
    paid = _events(ts_ms, ordered["key"].gather(order), np.arange(count))
    _write(directory, paid, arrival)
    pq.write_table(joined(ordered, paid).to_arrow(), directory / "expected.parquet")


def _orders(count: int) -> tuple[pl.DataFrame, np.ndarray]:
    """All orders, and the order in which they arrive."""
    rng = np.random.default_rng(data.SEED + 4)
    ts_ms = _before(_arrivals_ms(count, data.EVENTS_PER_S // 2), rng)
    keys = [f"o{n:08}" for n in range(count)]
    return _events(ts_ms, keys, rng.integers(1, 10_000, count)), np.arange(count)


def _arrivals_ms(count: int, per_s: int) -> np.ndarray:
    return data.START_MS + np.arange(count, dtype=np.int64) * 1000 // per_s


def _before(arrival_ms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The moments of which events tell that arrive then."""
    ts_ms = np.maximum(arrival_ms - rng.integers(0, data.DISORDER_MS, len(arrival_ms)), data.START_MS)
    return ts_ms // _STEP_MS * _STEP_MS


def _events(ts_ms: np.ndarray, keys: list[str] | pl.Series, values: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"ts_ms": ts_ms, "key": keys, "value": values})


def _write(directory: Path, events: pl.DataFrame, arrival: np.ndarray) -> None:
    """Write events as lines in the order of their arrival."""
    arrived = events[arrival].to_arrow()
    keys = arrived["key"].combine_chunks().cast(pa.string())
    lines = data.json_lines(arrived["ts_ms"].to_numpy(), keys, arrived["value"].combine_chunks())
    per_file = min(data.EVENTS_PER_FILE, max(1, len(lines) // 2))
    for number, content in enumerate(data.chunks(lines, per_file)):
        (directory / "lines" / f"part-{number:03}.jsonl").write_bytes(content)
