"""Patterns on Spark: exact with disorder, in any batches, though the run dies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import Application, patterns, sources, timestamp
from drivetrain.api.operators.patterns import PatternStep, Without
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorError

Event = tuple[int, str, int]
SMALL, LARGE = 20, 60
WITHIN = 8_000


def events(seed: int) -> list[Event]:
    """Time (ms), key and number, out of order by less than two seconds."""
    draw = random.Random(seed)
    made = [(draw.randrange(60_000), f"k{draw.randrange(4)}", draw.randrange(100)) for _ in range(160)]
    return sorted(made, key=lambda event: event[0] + draw.randrange(2_000))


def rising(message: Any, so_far: Any) -> bool:
    return bool(message.n > so_far.small.n + 50)


def application(
    drive: Harness, made: list[Event], *parts: PatternStep | Without, **options: Any
) -> Application:
    """Reads a file in each batch."""
    directory: Path = drive.directory / "in"
    directory.mkdir(exist_ok=True)
    for i in range(0, len(made), 20):
        rows = [(at(ms), key, n) for ms, key, n in made[i : i + 20]]
        types = (pa.timestamp("us", "UTC"), pa.string(), pa.int64())
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
        pq.write_table(pa.table(columns, names=["ts", "key", "n"]), directory / f"{i:03}.parquet")
    app = Application("matches")
    read = app.read(sources.parquet(directory, event_time="ts", max_disorder="2 s"), name="read")
    found = read.group_by(who="upper(key)").match(*parts, within=f"{WITHIN} ms", name="found", **options)
    drive.sink(found.with_columns(ts=timestamp()))
    return app


def by_key(made: list[Event]) -> dict[str, list[tuple[int, int]]]:
    keys = sorted({key for _, key, _ in made})
    return {key: sorted((ms, n) for ms, k, n in made if k == key) for key in keys}


def pairs(made: list[Event]) -> list[tuple[Any, ...]]:
    """Each small number with the next one that is larger by 50, in a loop over sorted messages."""
    found = []
    for key, messages in by_key(made).items():
        begun: list[tuple[int, int]] = []
        for now, n in messages:
            begun = [(began, first) for began, first in begun if began + WITHIN >= now]
            done = [(began, first) for began, first in begun if n > first + 50]
            if done:
                found.append((key.upper(), done[0][0], now, done[0][1], n))
                begun = []
            elif n < SMALL:
                begun.append((now, n))
    return sorted(found)


PARTS = (patterns.step("small", f"n < {SMALL}"), patterns.step("large", rising))


def found_pairs(drive: Harness) -> list[tuple[Any, ...]]:
    rows = drive.rows()
    assert all(ms(row["ts"]) == ms(row["match_end"]) for row in rows)
    return sorted(
        (r["who"], ms(r["match_start"]), ms(r["match_end"]), r["small"]["n"], r["large"]["n"]) for r in rows
    )


@pytest.mark.nightly("random applications draw patterns")
@pytest.mark.parametrize("batch", ["1 KiB", "1 MiB"])
def test_a_function_sees_the_match_so_far(drive: Harness, batch: str) -> None:
    made = events(7)
    drive.run(application(drive, made, *PARTS), run__max_batch_bytes=batch)
    assert found_pairs(drive) == pairs(made)
    assert len(pairs(made)) > 5


@pytest.mark.nightly("test_tasks_with_states, with the same state")
def test_matches_are_the_same_though_the_run_dies(drive: Harness) -> None:
    made, left = events(10), [2]

    def die(at_point: CrashPoint) -> None:
        left[0] -= at_point is CrashPoint.BEFORE_COMMIT
        if left[0] == 0:
            raise RuntimeError("died")

    with armed(die), pytest.raises(Exception, match="died"):
        drive.run(application(drive, made, *PARTS), run__max_batch_bytes="1 KiB")
    drive.run(application(drive, made, *PARTS), run__max_batch_bytes="1 KiB")
    assert found_pairs(drive) == pairs(made)


def test_a_function_that_raises_names_its_pattern(drive: Harness) -> None:
    def wrong(message: Any) -> bool:
        return bool(message.nothing)

    with pytest.raises(OperatorError, match="nothing") as raised:
        drive.run(application(drive, events(1), patterns.step("a", "n > 0"), patterns.step("b", wrong)))
    assert "found" in str(raised.value)


@pytest.mark.nightly("random applications draw patterns; test_pattern_matches")
def test_messages_that_do_not_come_are_a_match(drive: Harness) -> None:
    made = events(8)
    parts = (patterns.step("large", f"n >= {LARGE}"), patterns.without(f"n < {LARGE}"))
    drive.run(application(drive, made, *parts, overlapping=True))
    wanted = [
        (key.upper(), began, began + WITHIN, n)
        for key, messages in by_key(made).items()
        for i, (began, n) in enumerate(messages)
        if n >= LARGE and not any(other < LARGE and now <= began + WITHIN for now, other in messages[i + 1 :])
    ]
    found = [(r["who"], ms(r["match_start"]), ms(r["match_end"]), r["large"]["n"]) for r in drive.rows()]
    assert sorted(found) == sorted(wanted)
    assert found


@pytest.mark.nightly("random applications draw patterns")
def test_repeated_steps_are_arrays_of_messages(drive: Harness) -> None:
    made = events(9)
    parts = (
        patterns.step("small", f"n < {SMALL}"),
        patterns.step("others", f"n >= {SMALL}", at_least=2, directly=True),
    )
    drive.run(application(drive, made, *parts))
    wanted = []
    for key, messages in by_key(made).items():
        i = 0
        while i + 2 < len(messages):
            (began, n), others = messages[i], messages[i + 1 : i + 3]
            if n < SMALL and all(m >= SMALL for _, m in others) and others[-1][0] <= began + WITHIN:
                wanted.append((key.upper(), began, [(key, m) for _, m in others]))
                i += 3
            else:
                i += 1
    found = [
        (r["who"], ms(r["match_start"]), [(other["key"], other["n"]) for other in r["others"]])
        for r in drive.rows()
    ]
    assert sorted(found) == sorted(wanted)
    assert found
