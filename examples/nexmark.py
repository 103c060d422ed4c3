"""Nexmark: the queries on an auction house by which streaming systems compare themselves.

    drivetrain run examples/nexmark.py --set queries=q5,q7 --set events=1000000
    drivetrain plan examples/nexmark.py

Persons register, open auctions and bid: 1, 3 and 46 of 50 events, ten thousand a second of event time, up to
two seconds out of order. Each query writes Parquet files of its own; over this bounded input each result is
that of one batch query. What differs from the original:

- joins have a bound in time (`within`), because no state should grow for ever;
- q4, q15 to q19 give their final results, when the input ends;
- q7 gives one bid for each window: of equal ones the earliest;
- q10 writes what q0 writes, q12 has windows in processing time, which no run could repeat, q13 joins a table
  (`app.table`), and q21 and q22 are further projections: they are left out.

Source: Tucker, Tufte, Papadimos, Maier, "NEXMark: A Benchmark for Queries over Data Streams" (2002), and the
queries that the Beam and Flink communities added.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drivetrain import (
    Application,
    F,
    KeyedTask,
    ListState,
    Stream,
    ValueState,
    agg,
    col,
    expr,
    sinks,
    sources,
    windows,
)
from drivetrain.errors import ConfigError

START_US = 1_704_067_200_000_000  # 2024-01-01 UTC
EVENT_US, DISORDER_US = 100, 2_000_000
PERSONS, AUCTIONS, BIDS = 1, 3, 46  # of 50 events
FILES = 10
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne"]
CHANNELS = ["Apple", "Google", "Facebook", "Baidu"]
STAYS_OPEN = "25 s"
"""How long an auction is open at most; its bids come within this time."""


# -- the events ------------------------------------------------------------------------------------


def prepare(directory: Path, events: int) -> None:
    """Write persons, auctions and bids as Parquet files in the order of arrival, each time the same ones."""
    if directory.exists():
        return
    rng = np.random.default_rng(20020101)
    number, kind = np.arange(events) // 50, np.arange(events) % 50
    ts_us = START_US + np.arange(events, dtype=np.int64) * EVENT_US
    unfinished = directory.with_name(directory.name + ".unfinished")
    for name, chosen, make in (
        ("persons", kind < PERSONS, persons),
        ("auctions", (kind >= PERSONS) & (kind < PERSONS + AUCTIONS), auctions),
        ("bids", kind >= PERSONS + AUCTIONS, bids),
    ):
        table = make(number[chosen], kind[chosen], ts_us[chosen], rng)
        arrival = np.argsort(ts_us[chosen] + rng.integers(0, DISORDER_US, len(table)), kind="stable")
        table, rows = table.take(pa.array(arrival)), -(-len(table) // FILES)
        (unfinished / name).mkdir(parents=True, exist_ok=True)
        for file in range(FILES):
            pq.write_table(table.slice(file * rows, rows), unfinished / name / f"{file:02}.parquet")
    unfinished.rename(directory)


def persons(number: Any, _kind: Any, ts_us: Any, rng: np.random.Generator) -> pa.Table:
    """One person in 50 events; the id is the number."""
    place = rng.integers(0, len(STATES), len(number))
    return pa.table(
        {
            "id": number,
            "name": [f"person {id}" for id in number],
            "city": np.array(CITIES)[place],
            "state": np.array(STATES)[place],
            "date_time": pa.array(ts_us, pa.timestamp("us", "UTC")),
        }
    )


def auctions(number: Any, kind: Any, ts_us: Any, rng: np.random.Generator) -> pa.Table:
    """Three auctions for each person so far, by one of the last hundred persons."""
    open_us = rng.integers(2_000_000, 25_000_000, len(number))
    return pa.table(
        {
            "id": number * AUCTIONS + kind - PERSONS,
            "seller": np.maximum(number - rng.integers(0, 100, len(number)), 0),
            "category": rng.integers(10, 15, len(number)),
            "initial_bid": rng.integers(100, 10_000, len(number)),
            "date_time": pa.array(ts_us, pa.timestamp("us", "UTC")),
            "expires": pa.array((ts_us + open_us) // 1000 * 1000, pa.timestamp("us", "UTC")),
        }
    )


def bids(number: Any, _kind: Any, ts_us: Any, rng: np.random.Generator) -> pa.Table:
    """Bids on one of the last hundred auctions; half of them on the hot one of the moment."""
    newest = number * AUCTIONS
    hot = newest // 100 * 100
    auction = np.where(rng.random(len(number)) < 0.5, hot, newest - rng.integers(0, 100, len(number)))
    extra = rng.integers(97, 123, (len(number), 8), dtype=np.uint8).view("S8").ravel().astype(str)
    return pa.table(
        {
            "auction": np.maximum(auction, 0),
            "bidder": np.maximum(number - rng.integers(0, 1000, len(number)), 0),
            "price": np.exp(rng.normal(10, 2, len(number))).astype(np.int64) + 100,
            "channel": np.array(CHANNELS)[rng.integers(0, len(CHANNELS), len(number))],
            "date_time": pa.array(ts_us, pa.timestamp("us", "UTC")),
            "extra": extra,
        }
    )


# -- the queries -----------------------------------------------------------------------------------


class Events:
    """The three streams, each read only if a query asks for it: Drivetrain refuses one that nothing reads."""

    @cached_property
    def persons(self) -> Stream[Any]:
        return self._read("persons")

    @cached_property
    def auctions(self) -> Stream[Any]:
        return self._read("auctions")

    @cached_property
    def bids(self) -> Stream[Any]:
        return self._read("bids")

    def _read(self, name: str) -> Stream[Any]:
        return app.read(sources.parquet(data / name, event_time="date_time", max_disorder="2 s"), name=name)


def q0(events: Events) -> Stream[Any]:
    """Pass on."""
    return events.bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(events: Events) -> Stream[Any]:
    """Currency conversion: prices in euros."""
    return events.bids.select("auction", "bidder", "date_time", "extra", price=col("price") * 0.908)


def q2(events: Events) -> Stream[Any]:
    """Selection: bids on some auctions."""
    return events.bids.filter("auction % 123 = 0").select("auction", "price")


def q3(events: Events) -> Stream[Any]:
    """Local item suggestion: who in three states sells in category 10."""
    local = events.persons.filter("state IN ('OR', 'ID', 'CA')").select("name", "city", "state", seller="id")
    selling = events.auctions.filter("category = 10").select("seller", auction="id")
    pairs = selling.join(local, on="seller", within="1 h", name="q3_pairs")
    return pairs.select("name", "city", "state", "auction")


def q4(events: Events) -> Stream[Any]:
    """Average price of a category: the mean of the highest bids of its auctions."""
    final = bids_in_time(events, "q4").group_by("auction", "category")
    highest = final.aggregate(step="q4_highest", final=agg.max("price"))
    return highest.group_by("category").aggregate(step="q4", price=agg.mean("final"))


def bids_in_time(events: Events, query: str) -> Stream[Any]:
    """Bids with their auctions, if the auction was open."""
    opened = events.auctions.select("category", "seller", "expires", auction="id", opened="date_time")
    made = events.bids.select("auction", "price", "bidder", bid_at="date_time")
    pairs = opened.join(made, on="auction", within=STAYS_OPEN, name=f"{query}_pairs")
    return pairs.filter("bid_at BETWEEN opened AND expires")


def q5(events: Events) -> Stream[Any]:
    """Hot items: the auctions with the most bids in the last 10 s, every 2 s."""
    counts = events.bids.group_by("auction").window(windows.sliding("10 s", "2 s"))
    n = counts.aggregate(step="q5_counts", n=agg.count())
    most = n.window(windows.tumbling("2 s")).aggregate(
        step="q5_most", most=agg.max("n"), all=F.collect_list(F.struct("auction", "n"))
    )
    hot = most.with_columns(hot=expr("explode(filter(`all`, one -> one.n = most))"))
    return hot.select("window_end", auction="hot.auction", n="hot.n")


def q6(events: Events) -> Stream[Any]:
    """Average selling price of a seller: of the last ten auctions that closed with a bid."""
    made = events.bids.select("auction", "price")
    opened = events.auctions.select("seller", "expires", auction="id")
    return made.union(opened, missing="null").process(Close, name="q6_close").process(LastTen, name="q6")


@dataclass
class Sold:
    """An auction that has closed with a bid."""

    seller: int
    price: int


@dataclass
class SellingPrice:
    """The mean of a seller's last ten selling prices."""

    seller: int
    price: float


class Close(KeyedTask[Any, Sold]):
    """Keeps the highest bid of each open auction, and emits it when the auction closes."""

    key = "auction"
    in_order = True
    seller = ValueState(int)
    highest = ValueState(int)

    def on_next(self, event: Any) -> Iterable[Sold]:
        """An auction, or a bid on it."""
        if event.seller is not None:
            self.seller.set(event.seller)
            self.set_timer(int(event.expires.timestamp() * 1000))
        elif self.seller.get() is not None:
            self.highest.set(max(event.price, self.highest.get(0)))
        return ()

    def on_timer(self, _auction: Any, _at_ms: int) -> Iterator[Sold]:
        """The auction closes."""
        seller, price = self.seller.get(), self.highest.get()
        if seller is not None and price is not None:
            yield Sold(seller, price)
        self.seller.clear()
        self.highest.clear()


class LastTen(KeyedTask[Sold, SellingPrice]):
    """The mean of the last ten prices, after each sale."""

    key = "seller"
    in_order = True
    prices = ListState(int)

    def on_next(self, sold: Sold) -> Iterator[SellingPrice]:
        """An auction of the seller has closed."""
        newest = [*self.prices.get(), sold.price][-10:]
        self.prices.clear()
        for price in newest:
            self.prices.append(price)
        yield SellingPrice(sold.seller, sum(newest) / len(newest))


def q7(events: Events) -> Stream[Any]:
    """Highest bid of each 10 s."""
    top = events.bids.window(windows.tumbling("10 s")).top(1, by="price", name="q7_top")
    return top.select("window_end", "auction", "bidder", "price", "date_time")


def q8(events: Events) -> Stream[Any]:
    """New users: who has registered and opened an auction in the same 10 s."""
    sellers = events.auctions.group_by(id="seller").window(windows.tumbling("10 s"))
    opened = sellers.aggregate(step="q8_sellers", auctions=agg.count())
    new = events.persons.select("id", "name", registered="date_time")
    pairs = new.join(opened, on="id", within="10 s", name="q8_pairs")
    return pairs.filter("registered >= window_start AND registered < window_end").select(
        "id", "name", "window_start"
    )


def q9(events: Events) -> Stream[Any]:
    """Winning bids: the highest of each auction while it was open."""
    best = bids_in_time(events, "q9").group_by("auction", "seller", "category")
    highest = best.aggregate(step="q9", best=F.max(F.struct("price", "bidder")))
    return highest.select("auction", "seller", "category", price="best.price", bidder="best.bidder")


def q11(events: Events) -> Stream[Any]:
    """Bids of a user in each session, which ends after 10 s without a bid."""
    sessions = events.bids.group_by("bidder").window(windows.session("10 s"))
    return sessions.aggregate(step="q11", bids=agg.count())


def q14(events: Events) -> Stream[Any]:
    """Calculation: bids of some prices, by the time of day, with the number of `c` in the extra text."""
    euros = col("price") * 0.908
    return events.bids.filter((euros > 100_000) & (euros < 5_000_000)).select(
        "auction",
        "bidder",
        price=euros,
        time="CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END",
        c="length(extra) - length(replace(extra, 'c', ''))",
    )


RANKS = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}


def statistics() -> dict[str, Any]:
    """Bids, bidders and auctions, in all and by the rank of the price."""
    made: dict[str, Any] = {"bids": agg.count()}
    made |= {f"{rank}_bids": F.count_if(expr(condition)) for rank, condition in RANKS.items()}
    for what in ("bidder", "auction"):
        made[f"{what}s"] = agg.collect_set(what)
        for rank, condition in RANKS.items():
            made[f"{rank}_{what}s"] = F.collect_set(F.when(expr(condition), col(what)))
    return made


def sizes() -> dict[str, str]:
    """The sizes of the sets among the statistics."""
    sets = [name for name in statistics() if not name.endswith("bids")]
    return {name: f"size({name})" for name in sets}


def q15(events: Events) -> Stream[Any]:
    """Statistics of each day."""
    days = events.bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')").group_by("day")
    return days.aggregate(step="q15_sets", **statistics()).with_columns(step="q15", **sizes())


def q16(events: Events) -> Stream[Any]:
    """Statistics of each channel and day."""
    days = events.bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')").group_by("channel", "day")
    return days.aggregate(step="q16_sets", **statistics()).with_columns(step="q16", **sizes())


def q17(events: Events) -> Stream[Any]:
    """Statistics of each auction and day."""
    days = events.bids.with_columns(day="date_format(date_time, 'yyyy-MM-dd')").group_by("auction", "day")
    return days.aggregate(
        step="q17",
        bids=agg.count(),
        **{f"{rank}_bids": F.count_if(expr(condition)) for rank, condition in RANKS.items()},
        lowest=agg.min("price"),
        highest=agg.max("price"),
        mean=agg.mean("price"),
        total=agg.sum("price"),
    )


def q18(events: Events) -> Stream[Any]:
    """The last bid of each bidder on each auction."""
    last = events.bids.group_by("bidder", "auction")
    return last.aggregate(step="q18", price=agg.last("price"), date_time=agg.last("date_time"))


def q19(events: Events) -> Stream[Any]:
    """The ten highest bids of each auction."""
    ranked = events.bids.group_by("auction").top(10, by="price", name="q19_top")
    return ranked.select("auction", "rank", "bidder", "price", "date_time")


def q20(events: Events) -> Stream[Any]:
    """Bids with the auctions of category 10 that were open."""
    return bids_in_time(events, "q20").filter("category = 10").select("auction", "bidder", "price", "bid_at")


QUERIES: dict[str, Callable[[Events], Stream[Any]]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q11, q14, q15, q16, q17, q18, q19, q20)
}

app = Application("nexmark")
count = int(app.setting("events", "200000", doc="how many events"))
chosen = app.setting("queries", "q2,q5,q7,q8", doc="which queries, or all").replace(" ", "")
data = Path(app.setting("data", f".drivetrain/nexmark-{count}", doc="where the events are kept"))
out = Path(app.setting("output", "nexmark-out", doc="a directory for the results"))

names = list(QUERIES) if chosen == "all" else chosen.split(",")
if unknown := [name for name in names if name not in QUERIES]:
    raise ConfigError(
        f"there is no query {unknown[0]!r}",
        where=f"--set queries={chosen}",
        expected=f"some of {', '.join(QUERIES)}, with commas between them, or all",
    )

prepare(data, count)
streams = Events()
for name in names:
    QUERIES[name](streams).sink(sinks.parquet(out / name), name=f"{name}_files")
