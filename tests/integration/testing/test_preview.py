"""A preview shows what a stream gives, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drivetrain import Application, Stream, agg, sinks, sources, windows
from drivetrain.errors import OperatorError, UnavailableError, UserError

pytestmark = pytest.mark.usefixtures("spark")


def orders_in(folder: Path, app: Application, count: int = 30) -> Stream:
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"at": f"2026-01-01T0{n % 3}:{n:02}:00Z", "item": f"<b>{n % 2}</b>", "amount": n})
        for n in range(count)
    ]
    (folder / "orders.jsonl").write_text("\n".join(lines))
    return app.read(
        sources.json(
            folder,
            schema="at timestamp, item string, amount bigint",
            event_time="at",
            max_disorder="5 h",
            watch=True,
        ),
        name="orders",
    )


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_messages_windows_and_joins_are_shown_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = Application("shop")
    orders = orders_in(tmp_path / "in", app)
    kinds = tmp_path / "kinds.csv"
    kinds.write_text("item,kind\n<b>1</b>,odd\n")
    paid = orders.filter("amount > 2", name="paid")
    table = app.table(sources.csv(kinds, schema="item string, kind string"), name="kinds")
    joined = paid.join(table, on="item", name="joined")
    hourly = joined.group_by("kind").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.parquet(tmp_path / "out"), name="out")
    before = files_below(tmp_path)

    shown = app.preview(orders, rows=3)
    assert [row["amount"] for row in shown] == [0, 1, 2]
    assert len(shown) == 3
    assert "… and 27 more rows" in repr(shown)
    assert "orders, for 30 messages of orders" in repr(shown)
    page = shown._repr_html_()
    assert "&lt;b&gt;0&lt;/b&gt;" in page
    assert "<b>" not in page
    assert page.count("<tr>") == 4
    assert [row["amount"] for row in app.preview("paid", rows=1)] == [3]
    assert sum(row["n"] for row in app.preview("out")) == 14
    assert files_below(tmp_path) == before


def test_given_messages_take_the_place_of_a_source_that_can_be_read_only_once() -> None:
    app = Application("lines")
    lines = app.read(sources.socket("localhost", 9), name="lines")
    once = app.read(sources.items(iter([("a",)]), "value string"), name="once")
    loud = lines.map(str.upper, returns=str, name="loud")
    loud.union(once, name="all").sink(sinks.console())
    assert list(app.preview(loud, inputs={"lines": ["a", "b"]})) == [{"value": "A"}, {"value": "B"}]
    for stream in (loud, once):
        with pytest.raises(UserError, match=r"only once[\s\S]*inputs="):
            app.preview(stream)


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_list_is_a_sample_and_the_rest_of_the_graph_does_not_run() -> None:
    def never(amount: int) -> int:
        raise ValueError("must not run")

    app = Application("items")
    numbers = app.read(sources.items([1, 2, 3], "amount bigint"), name="numbers")
    numbers.map(never, name="never").sink(sinks.none())
    assert list(app.preview(numbers, rows=2)) == [{"amount": 1}, {"amount": 2}]
    with pytest.raises(OperatorError, match="must not run"):
        app.preview("never")


def test_a_source_without_messages_says_so(tmp_path: Path) -> None:
    app = Application("empty")
    orders_in(tmp_path / "in", app, count=0).sink(sinks.none(), name="out")
    with pytest.raises(UnavailableError, match="a message of every source"):
        app.preview("out", timeout="3 s")
    with pytest.raises(UserError, match="no processor 'order'"):
        app.preview("order")
