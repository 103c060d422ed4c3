"""What the queries of `examples/nexmark.py` must give: each as one batch query in Polars over the same files.

Called by `nexmark` and by the tests of the example.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa

Frames = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]

RANKS = {
    "low": pl.col("price") < 10_000,
    "middle": (pl.col("price") >= 10_000) & (pl.col("price") < 1_000_000),
    "high": pl.col("price") >= 1_000_000,
}


def read(data: Path) -> Frames:
    """Persons, auctions and bids."""
    persons, auctions, bids = (
        pl.read_parquet(data / name / "*.parquet") for name in ("persons", "auctions", "bids")
    )
    return persons, auctions, bids


def expected(query: str, events: Frames) -> pa.Table:
    """The result of a query, its rows in no order."""
    return QUERIES[query](*events).to_arrow()


def _q0(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return bids.select("auction", "bidder", "price", "date_time", "extra")


def _q1(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return bids.select("auction", "bidder", "date_time", "extra", price=pl.col("price") * 0.908)


def _q2(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return bids.filter(pl.col("auction") % 123 == 0).select("auction", "price")


def _q3(persons: pl.DataFrame, auctions: pl.DataFrame, _bids: pl.DataFrame) -> pl.DataFrame:
    local = persons.filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    selling = auctions.filter(category=10).select("seller", auction="id")
    pairs = selling.join(local, left_on="seller", right_on="id")
    return pairs.select("name", "city", "state", "auction")


def _in_time(auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    opened = auctions.select("category", "seller", "expires", auction="id", opened="date_time")
    made = bids.select("auction", "price", "bidder", bid_at="date_time")
    return opened.join(made, on="auction").filter(pl.col("bid_at").is_between("opened", "expires"))


def _q4(_persons: pl.DataFrame, auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    final = _in_time(auctions, bids).group_by("auction", "category").agg(final=pl.col("price").max())
    return final.group_by("category").agg(price=pl.col("final").mean())


def _q5(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    ends = [
        bids.select(
            "auction", window_end=pl.col("date_time").dt.truncate("2s") + pl.duration(seconds=2 * (n + 1))
        )
        for n in range(5)
    ]
    counts = pl.concat(ends).group_by("window_end", "auction").agg(n=pl.len().cast(pl.Int64))
    return counts.filter(pl.col("n") == pl.col("n").max().over("window_end"))


def sellers_at_once(auctions: pl.DataFrame, bids: pl.DataFrame) -> list[int]:
    """Sellers of whom two auctions closed with a bid in one millisecond, the unit of timers."""
    closed = _sold(auctions, bids).group_by("seller", pl.col("expires").dt.truncate("1ms")).len()
    return closed.filter(pl.col("len") > 1)["seller"].to_list()


def _sold(auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    closed = _in_time(auctions, bids).filter(pl.col("bid_at") < pl.col("expires"))
    return closed.group_by("auction", "seller", "expires").agg(price=pl.col("price").max())


def _q6(_persons: pl.DataFrame, auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    ordered = _sold(auctions, bids).sort("seller", "expires", "price")
    means = pl.col("price").rolling_mean(window_size=10, min_samples=1).over("seller")
    return ordered.select("seller", price=means)


def _q7(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    timed = bids.with_columns(window_end=pl.col("date_time").dt.truncate("10s") + timedelta(seconds=10))
    best = timed.sort("price", "date_time", descending=[True, False]).group_by("window_end").first()
    return best.select("window_end", "auction", "bidder", "price", "date_time")


def _q8(persons: pl.DataFrame, auctions: pl.DataFrame, _bids: pl.DataFrame) -> pl.DataFrame:
    window = pl.col("date_time").dt.truncate("10s").alias("window_start")
    sellers = auctions.select(window, id="seller").unique()
    return persons.select("id", "name", window).join(sellers, on=["id", "window_start"])


def _q9(_persons: pl.DataFrame, auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    ordered = _in_time(auctions, bids).sort("price", "bidder", descending=True)
    best = ordered.group_by("auction", "seller", "category").first()
    return best.select("auction", "seller", "category", "price", "bidder")


def _q11(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    gap = timedelta(seconds=10)
    ordered = bids.select("bidder", "date_time").sort("bidder", "date_time")
    begins = (pl.col("date_time").diff().over("bidder") >= gap).fill_null(value=True)
    sessions = ordered.with_columns(session=begins.cum_sum())
    bounds = sessions.group_by("bidder", "session").agg(
        window_start=pl.col("date_time").min(),
        window_end=pl.col("date_time").max() + gap,
        bids=pl.len().cast(pl.Int64),
    )
    return bounds.drop("session")


def _q14(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    euros = pl.col("price") * 0.908
    hour = pl.col("date_time").dt.hour()
    return bids.filter((euros > 100_000) & (euros < 5_000_000)).select(
        "auction",
        "bidder",
        price=euros,
        time=pl.when(hour.is_between(8, 18)).then(pl.lit("day")).otherwise(pl.lit("night")),
        c=pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int32),
    )


def _statistics(bids: pl.DataFrame, *keys: str) -> pl.DataFrame:
    made = {"bids": pl.len().cast(pl.Int64)}
    made |= {f"{rank}_bids": chosen.sum().cast(pl.Int64) for rank, chosen in RANKS.items()}
    for what in ("bidder", "auction"):
        made[f"{what}s"] = pl.col(what).n_unique().cast(pl.Int32)
        for rank, chosen in RANKS.items():
            made[f"{rank}_{what}s"] = pl.col(what).filter(chosen).n_unique().cast(pl.Int32)
    return _by_day(bids).group_by(*keys).agg(**made)


def _by_day(bids: pl.DataFrame) -> pl.DataFrame:
    return bids.with_columns(day=pl.col("date_time").dt.strftime("%Y-%m-%d"))


def _q15(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return _statistics(bids, "day")


def _q16(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return _statistics(bids, "channel", "day")


def _q17(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    price = pl.col("price")
    return (
        _by_day(bids)
        .group_by("auction", "day")
        .agg(
            bids=pl.len().cast(pl.Int64),
            **{f"{rank}_bids": chosen.sum().cast(pl.Int64) for rank, chosen in RANKS.items()},
            lowest=price.min(),
            highest=price.max(),
            mean=price.mean(),
            total=price.sum(),
        )
    )


def _q18(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    last = bids.sort("date_time", descending=True).group_by("bidder", "auction").first()
    return last.select("bidder", "auction", "price", "date_time")


def _q19(_persons: pl.DataFrame, _auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    ordered = bids.sort("price", "date_time", descending=[True, False])
    ranked = ordered.with_columns(rank=pl.int_range(1, pl.len() + 1).over("auction").cast(pl.Int32))
    return ranked.filter(pl.col("rank") <= 10).select("auction", "rank", "bidder", "price", "date_time")


def _q20(_persons: pl.DataFrame, auctions: pl.DataFrame, bids: pl.DataFrame) -> pl.DataFrame:
    return _in_time(auctions.filter(category=10), bids).select("auction", "bidder", "price", "bid_at")


QUERIES: dict[str, Callable[[pl.DataFrame, pl.DataFrame, pl.DataFrame], pl.DataFrame]] = {
    query.__name__.removeprefix("_"): query
    for query in (
        *(_q0, _q1, _q2, _q3, _q4, _q5, _q6, _q7, _q8, _q9),
        *(_q11, _q14, _q15, _q16, _q17, _q18, _q19, _q20),
    )
}
