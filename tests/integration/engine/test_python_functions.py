"""Python functions: fused, typed, folded, and what happens when they fail."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, Monoid, agg, sinks, sources, windows
from drivetrain.errors import OperatorError, OperatorTypeError
from drivetrain.spark.batch.read_dead_letters import dead_letters

LINES = ["the quick brown fox", "", "jumps over the lazy dog", "the end  ", "naïve 東京 the"]
SCHEMA = "ts timestamp, key string, n bigint"


@dataclass
class Reading:
    key: str
    value: float


def split(line: str) -> list[str]:
    return line.split()


def shout(word: str) -> str:
    return word.upper()


def is_long(word: str) -> bool:
    return len(word) > 3


def reading(row: Any) -> Iterator[Reading]:
    yield Reading(row.word, float(row.length))


def test_python_functions_in_a_row_do_what_python_does(drive: Harness) -> None:
    app = Application("words")
    words = app.read(sources.items(LINES, schema="value string")).flat_map(split).map(shout).filter(is_long)
    lengths = words.map(lambda word: (word, len(word)), returns="word string, length bigint")
    drive.sink(lengths.flat_map(reading).group_by("key").aggregate(n=agg.count(), length=agg.max("value")))
    result = drive.run(app)
    wanted = Counter(w.upper() for line in LINES for w in line.split() if len(w) > 3)
    assert {r["key"]: (r["n"], r["length"]) for r in drive.rows()} == {
        w: (n, float(len(w))) for w, n in wanted.items()
    }
    assert {o.processor: o.messages for o in result.outputs} == {"to-out": len(wanted)}


class Longest(Monoid[Any, str]):
    def zero(self) -> str:
        return ""

    def add(self, state: str, message: Any) -> str:
        return max(state, str(message.n), key=lambda s: (len(s), s))

    def plus(self, left: str, right: str) -> str:
        return max(left, right, key=lambda s: (len(s), s))

    def result(self, state: str) -> str:
        return state


@pytest.mark.nightly("random applications draw folds and monoids")
def test_reduce_fold_and_monoids_agree_with_one_pass(drive: Harness) -> None:
    rows = [(at(i * 100), "abc"[i % 3], i) for i in range(300)]
    app = Application("folds")
    keyed = events(app, rows, SCHEMA).group_by("key").window(windows.tumbling("10 s"))
    drive.sink(keyed.aggregate(step="longest", longest=Longest()), "monoid")
    drive.sink(keyed.fold(lambda: 0, lambda state, m: state + m.n, returns=int, name="folded"), "fold")
    numbers = events(app, rows, SCHEMA).select("n")
    drive.sink(
        numbers.group_by(odd="n % 2").reduce(lambda a, b: max(a, b), returns=int, name="largest"), "reduce"
    )
    drive.run(app)

    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for time, key, n in rows:
        groups[key, ms(time) // 10_000 * 10_000].append(n)
    by_window = {(r["key"], ms(r["window_start"])): r for r in drive.rows("monoid")}
    assert {g: r["longest"] for g, r in by_window.items()} == {g: str(max(ns)) for g, ns in groups.items()}
    folded = {(r["key"], ms(r["window_start"])): r["value"] for r in drive.rows("fold")}
    assert folded == {g: sum(ns) for g, ns in groups.items()}
    assert {r["odd"]: r["value"] for r in drive.rows("reduce")} == {0: 298, 1: 299}


def test_a_failing_function_stops_the_application_with_its_message_and_traceback(drive: Harness) -> None:
    def ratio(n: int) -> float:
        return 10 / n

    app = Application("failing")
    drive.sink(
        app.read(sources.items([1, 2, 0], schema="value bigint"))
        .map(ratio, returns=float)
        .map(str, returns=str)
    )
    with pytest.raises(OperatorError) as caught:
        drive.run(app)
    assert "ZeroDivisionError" in caught.value.what
    assert caught.value.operator.startswith("map-ratio (test_python_functions.py:")
    assert caught.value.message == "0"
    assert "return 10 / n" in caught.value.user_traceback
    assert "drivetrain/spark" not in caught.value.user_traceback
    assert drive.rows() == []


@pytest.mark.nightly("test_persistent_tasks reaches what it reaches")
def test_dead_letters_hold_what_failed_and_the_rest_goes_on(drive: Harness) -> None:
    def parse(text: str) -> int:
        return int(text)

    app = Application("letters")
    good = app.read(sources.items(["1", "x", "3", "", "5"], schema="value string")).map(
        parse, on_error="dead_letter"
    )
    drive.sink(good.group_by(all="1").aggregate(n=agg.count(), total=agg.sum("value")))
    result = drive.run(app)
    assert [(r["n"], r["total"]) for r in drive.rows()] == [(3, 9)]
    assert result.dead_lettered == 2
    letters = dead_letters(app, drive.config()).to_pylist()
    assert sorted(letter["message"] for letter in letters) == ["''", "'x'"]
    assert all("ValueError: invalid literal" in letter["error"] for letter in letters)
    assert all(letter["operator"].startswith("map-parse") for letter in letters)


def test_a_result_of_another_type_names_expected_and_got(drive: Harness) -> None:
    app = Application("lying")

    def lies(n: int) -> int:
        return f"{n}!"  # type: ignore[return-value]

    drive.sink(app.read(sources.items([1], schema="value bigint")).map(lies))
    with pytest.raises(OperatorError, match=r"expected column value to be int64, got '1!' \(str\)"):
        drive.run(app)


def test_a_parameter_that_does_not_fit_its_input_is_refused_before_anything_runs(drive: Harness) -> None:
    app = Application("misfit")
    drive.sink(app.read(sources.items([1], schema="value bigint")).map(shout))
    with pytest.raises(OperatorTypeError, match="value bigint"):
        drive.run(app)


@pytest.mark.nightly("test_counting_functions reaches what it reaches")
def test_column_functions_take_columns_by_name(drive: Harness) -> None:
    def kmh(metres: int, seconds: int) -> float:
        return metres / seconds * 3.6

    app = Application("columns")
    stream = app.read(sources.items([(100, 10), (50, 2)], schema="metres bigint, seconds bigint"))
    drive.sink(stream.with_columns(speed=kmh).filter("speed > 36.5"))
    drive.run(app)
    assert drive.rows() == [{"metres": 50, "seconds": 2, "speed": 90.0}]


def test_a_function_that_cannot_be_sent_to_workers_is_named(drive: Harness) -> None:
    import threading

    lock = threading.Lock()

    def locked(n: int) -> int:
        with lock:
            return n

    app = Application("unshippable")
    drive.sink(
        app.read(sources.items([1], schema="value bigint")).map(locked).map(lambda n: [n], returns=list[int])
    )
    with pytest.raises(Exception, match="cannot be sent to Spark's workers") as caught:
        drive.run(app)
    assert "remedy" in str(caught.value)


@pytest.mark.nightly("random applications draw streams with several readers")
def test_rows_that_several_consumers_read_are_computed_once_and_all_written(drive: Harness) -> None:
    app = Application("several")
    words = app.read(sources.items(LINES, schema="value string")).flat_map(split)
    drive.sink(words, "all")
    drive.sink(words.filter(is_long), "long")
    words.sink(sinks.none())
    result = drive.run(app)
    every = [w for line in LINES for w in line.split()]
    assert sorted(r["value"] for r in drive.rows("all")) == sorted(every)
    assert sorted(r["value"] for r in drive.rows("long")) == sorted(w for w in every if len(w) > 3)
    counted = {p.processor: (p.messages_in, p.messages_out) for p in result.processors}
    assert counted["flat_map-split"] == (len(LINES), len(every))


class Rates(BaseHTTPRequestHandler):
    """Answers a number with its double; the first request for each seventh number fails."""

    most = running = 0
    asked: ClassVar[Counter[int]] = Counter()
    lock = threading.Lock()

    def do_GET(self) -> None:
        n = int(self.path[1:])
        with Rates.lock:
            Rates.running += 1
            Rates.most = max(Rates.most, Rates.running)
            Rates.asked[n] += 1
            fails = n % 7 == 0 and Rates.asked[n] == 1
        threading.Event().wait(0.02)
        with Rates.lock:
            Rates.running -= 1
        self.send_response(503 if fails else 200)
        self.end_headers()
        self.wfile.write(str(2 * n).encode())

    def log_message(self, *_: Any) -> None:
        """Keep the output of the tests readable."""


def test_a_service_is_asked_for_many_messages_at_a_time_and_again_when_it_fails(drive: Harness) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rates)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]

    async def doubled(n: int) -> tuple[int, int]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /{n} HTTP/1.0\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        if " 503 " in answer.splitlines()[0]:
            raise ConnectionError(f"the service cannot answer {n}")
        return n, int(answer.rsplit("\n", 1)[-1])

    numbers = [(n % 200,) for n in range(400)]
    app = Application("rates")
    read = app.read(sources.items(numbers, schema="n bigint"))
    made = read.async_map(doubled, concurrency=8, retries=1, backoff="10 ms", cache="1 h", name="doubled")
    drive.sink(made)
    refused = read.filter("n < 8").async_map(doubled, retries=0, on_error="dead_letter", name="refused")
    drive.sink(refused, "refused")
    result = drive.run(app)
    server.shutdown()
    assert sorted((r["key"], r["value"]) for r in drive.rows()) == sorted((n, 2 * n) for (n,) in numbers)
    assert len(drive.rows("refused")) + result.dead_lettered == sum(n < 8 for (n,) in numbers)
    assert Rates.most > 2
