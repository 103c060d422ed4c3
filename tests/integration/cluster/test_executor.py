"""Real executor processes under an application master that follows a script."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from executor_world import EPOCH, World, drive, family

from drivetrain.cluster.messages.executing import (
    CancelFragment,
    Conclude,
    Concluded,
    EndExecutor,
    FragmentOutcome,
    Prepare,
    Prepared,
    PrepareFailed,
)

FINISHED, FAILED, RUNNING = FragmentOutcome.FINISHED, FragmentOutcome.FAILED, FragmentOutcome.RUNNING

WORDS = """
from pathlib import Path
from drivetrain import Application, accumulator, sinks, sources
app = Application("words")
broken = Path(app.setting("broken"))
seen = accumulator("words")

def split(line):
    if broken.exists() and "three" in line:
        raise ValueError("the third word is broken")
    found = line.split()
    seen.add(len(found))
    return found

words = app.read(sources.text(app.setting("input"))).flat_map(lambda m: split(m), returns=str)
words.group_by(word="value").count().sink(sinks.parquet(app.setting("output")), name="counts")

@app.when_finished
def tell(result):
    if result.duration_ms < 0:
        raise RuntimeError("no time to tell")
    print(result.outputs[0].messages, "words told")
"""

CHAINED = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("chained")
events = app.read(sources.parquet(app.setting("input"))).event_time("ts", max_disorder="20 s")
grouped = events.group_by("key").window(windows.tumbling("10 s"))
short = grouped.aggregate(step="short", n=agg.count(), total=agg.sum("n"))
short.sink(sinks.parquet(app.setting("output") + "/short"))
long = short.group_by("key").window(windows.tumbling("1 min")).aggregate(step="long", n=agg.sum("n"))
long.sink(sinks.parquet(app.setting("output") + "/long"))
"""


def words_world(tmp_path: Path, **config: str) -> World:
    (tmp_path / "code").mkdir()
    app = tmp_path / "code" / "words.py"
    app.write_text(WORDS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one two\nthree one\n")
    settings = {"input": "in", "output": "out", "broken": str(tmp_path / "broken")}
    return World(tmp_path, app, settings, **config)


def counted(out: Path) -> dict[str, int]:
    files = sorted(map(str, out.glob("*.parquet")))
    rows = ds.dataset(files).to_table().to_pylist()
    assert len({row["word"] for row in rows}) == len(rows)
    return {row["word"]: row["count"] for row in rows}


@pytest.mark.timeout(400)
@pytest.mark.nightly("test_changes_in_a_cluster runs an executor; simulated by test_attempts_under_faults")
def test_an_application_is_prepared_run_retried_after_its_function_failed_and_concluded(
    tmp_path: Path,
) -> None:
    """Also: paths are relative to the client's directory, and nothing is left when the executor ends."""
    world = words_world(tmp_path)
    (tmp_path / "broken").touch()

    async def script(world: World) -> None:
        executor = await world.started("e1")
        prepared = await world.ask(executor, Prepare("app-1", EPOCH, fresh=False))
        assert isinstance(prepared, Prepared), prepared
        assert (prepared.finished, prepared.resumed, prepared.spark_master) == (False, False, "local[1]")
        assert [o.processor for o in prepared.outputs] == ["counts"]
        again = await world.ask(executor, Prepare("app-1", EPOCH, fresh=True))
        assert again == prepared, "asked again it is not prepared again"

        world.deploy(executor, "aggregate")
        failed = await world.outcome("aggregate", 0, FINISHED)
        assert failed.outcome is FAILED
        assert failed.retryable
        assert failed.error is not None
        assert failed.error.code == "operator"
        assert 'raise ValueError("the third word is broken")' in str(failed.error.user_traceback)
        assert "drivetrain/spark" not in str(failed.error.user_traceback)

        (tmp_path / "broken").unlink()
        world.deploy(executor, "aggregate", 1)
        finished = await world.outcome("aggregate", 1, FINISHED)
        assert finished.outcome is FINISHED, finished
        assert world.order[-2:] == [("aggregate", 1, RUNNING), ("aggregate", 1, FINISHED)]
        progress = world.progress("aggregate", 1)
        assert progress is not None, "what is final is told before the outcome"
        assert progress.into == {"counts": 3}
        assert progress.out == {"read": 2}
        assert world.accumulators("aggregate") == {"words": 4}
        assert counted(tmp_path / "out") == {"one": 2, "two": 1, "three": 1}

        outputs = tuple(type(o)(o.processor, o.target, 3, o.guarantee) for o in prepared.outputs)
        done = await world.ask(executor, Conclude(EPOCH, {"counts": (3, 0, 0, 0)}, outputs, 10, None))
        assert done == Concluded("3 words told\n")

        told = await world.ask(executor, Conclude(EPOCH, {"counts": (3, 0, 0, 0)}, outputs, -1, None))
        assert isinstance(told, PrepareFailed)
        assert (told.error.code, told.retryable) == ("when-finished", False)
        assert "no time to tell" in str(told.error.user_traceback)

        members = family(world.processes["e1"])
        assert any("java" in p.name() for p in members)
        executor.tell(EndExecutor(EPOCH, "done"))
        assert await world.ended("e1") == 0, world.log("e1")
        await world.until(lambda: not any(p.is_running() for p in members), 60)

        # Whoever comes later finds it finished, without Spark.
        later = await world.started("e2")
        told = await world.ask(later, Prepare("app-1", EPOCH, fresh=False))
        assert isinstance(told, Prepared)
        assert told.finished

    drive(world, script)


def write_events(directory: Path, count: int, parts: int) -> Counter[tuple[str, int, int, int]]:
    """Events as Parquet, 20 s out of order at most; returns the windows of `short`."""
    directory.mkdir()
    draw = random.Random(3)
    times = sorted(
        (ts + draw.randrange(20_000), ts) for ts in (draw.randrange(600_000) for _ in range(count))
    )
    rows = [(ts * 1000, "abcd"[i % 4], i) for i, (_, ts) in enumerate(times)]
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("n", pa.int64())])
    size = -(-count // parts)
    for part in range(parts):
        columns = list(zip(*rows[part * size : (part + 1) * size], strict=True))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        pq.write_table(pa.table(arrays, schema), directory / f"{part:02}.parquet")
    groups: dict[tuple[str, int], list[int]] = {}
    for us, key, n in rows:
        groups.setdefault((key, us // 10_000_000), []).append(n)
    return Counter((key, window, len(ns), sum(ns)) for (key, window), ns in groups.items())


@pytest.mark.nightly("simulated by test_attempts_under_faults")
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_is_replaced_and_the_other_goes_on(tmp_path: Path) -> None:
    """The producer's executor dies; the consumer's reads on, drained and started again meanwhile.

    It runs the producer, too.
    """
    (tmp_path / "code").mkdir()
    app = tmp_path / "code" / "chained.py"
    app.write_text(CHAINED)
    wanted = write_events(tmp_path / "in", 2000, 6)
    settings = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    world = World(tmp_path, app, settings, run__max_batch_bytes="8 KiB")

    async def script(world: World) -> None:
        producer, consumer = await world.started("e1"), await world.started("e2")
        prepared = await world.ask(producer, Prepare("app-1", EPOCH, fresh=True))
        assert isinstance(prepared, Prepared), prepared
        world.deploy(producer, "short")
        world.deploy(consumer, "long")
        await world.outcome("long", 0, RUNNING)
        await world.until(lambda: (p := world.progress("short")) is not None and p.batch_id >= 1)

        members = family(world.processes["e1"])
        assert any("java" in p.name() for p in members)
        world.processes["e1"].send_signal(signal.SIGKILL)
        consumer.tell(CancelFragment("long", 0, drain=True))
        drained = await world.outcome("long", 0, FragmentOutcome.CANCELED)
        assert drained.outcome is FragmentOutcome.CANCELED, drained
        world.deploy(consumer, "long", 1)
        world.deploy(consumer, "short", 1)
        finished = await world.outcome("short", 1, FINISHED)
        assert finished.outcome is FINISHED, finished
        assert not any(p.is_running() and p.status() != "zombie" for p in members), "nothing outlives it"
        last = await world.outcome("long", 1, FINISHED)
        assert last.outcome is FINISHED, last
        assert world.order[-1] == ("long", 1, FINISHED), "the consumer ends behind its producer"
        world.processes["e2"].terminate()
        assert await world.ended("e2") == 0

    drive(world, script)
    short = ds.dataset(sorted(map(str, (tmp_path / "out/short").glob("*.parquet")))).to_table().to_pylist()
    found = Counter((r["key"], round(r["window_start"].timestamp()) // 10, r["n"], r["total"]) for r in short)
    assert found == wanted
    long = ds.dataset(sorted(map(str, (tmp_path / "out/long").glob("*.parquet")))).to_table().to_pylist()
    minutes: Counter[tuple[str, int]] = Counter()
    for key, window, n, _ in wanted:
        minutes[key, window // 6] += n
    assert Counter({(r["key"], round(r["window_start"].timestamp()) // 60): r["n"] for r in long}) == minutes
    assert len(long) == len(minutes)


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_an_executor_of_an_older_epoch_ends_and_so_does_one_without_application_master(
    tmp_path: Path,
) -> None:
    world = words_world(tmp_path)

    async def script(world: World) -> None:
        world.launch("old", epoch=EPOCH - 1)
        assert await world.ended("old") == 0
        assert "stale" in world.log("old") or f"epoch {EPOCH}" in world.log("old")
        executor = await world.started("new")
        with pytest.raises(Exception, match="epoch") as refused:
            await world.ask(executor, Prepare("app-1", EPOCH - 1, fresh=True))
        assert getattr(refused.value, "failure_code", None) == "refused"
        executor.tell(CancelFragment("aggregate", 7))
        canceled = await world.outcome("aggregate", 7, FragmentOutcome.CANCELED)
        assert canceled.outcome is FragmentOutcome.CANCELED
        executor.tell(CancelFragment("aggregate", 7))
        world.deploy(executor, "aggregate", 7)
        executor.tell(CancelFragment("aggregate", 8))
        await world.outcome("aggregate", 8, FragmentOutcome.CANCELED)
        assert len(world.order) == 2, "what was cancelled before it began never begins, and is told once"
        world.system.stop(world.app_master)
        assert await world.ended("new") == 0
        assert not (tmp_path / "state").exists()

    drive(world, script)


@pytest.mark.nightly("test_bad_input and test_session, embedded")
def test_a_file_that_raises_and_a_spark_master_that_is_not_there_are_told_clearly(tmp_path: Path) -> None:
    world = words_world(tmp_path, spark__master="spark://127.0.0.1:1")

    async def script(world: World) -> None:
        executor = await world.started("e1")
        told = await world.ask(executor, Prepare("app-1", EPOCH, fresh=False))
        assert isinstance(told, PrepareFailed)
        assert told.retryable
        assert (told.error.code, told.error.what) == ("unavailable", "no Spark master listens there")
        assert "spark.master" in str(told.error.remedy)
        assert not (tmp_path / "out").exists()

        (world.code / "words.py").write_text(
            "def build():\n    raise LookupError('no such thing')\nbuild()\n"
        )
        other = await world.started("e2")
        told = await world.ask(other, Prepare("app-1", EPOCH, fresh=False))
        assert isinstance(told, PrepareFailed)
        assert not told.retryable
        assert told.error.code == "application-file"
        assert "LookupError: no such thing" in str(told.error.user_traceback)
        executor.tell(EndExecutor(EPOCH, "done"))
        world.processes["e2"].terminate()
        assert [await world.ended("e1"), await world.ended("e2")] == [0, 0]

    drive(world, script)
