"""An application whose state is in an object store: `state.dir` is a place there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from test_lost_machine import Notices, rows_in

from drivetrain import Application, agg, run, savepoint, sinks, sources, start
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import InputError, UnavailableError, UserError
from drivetrain.runtime.checkpoints import continuation_watch, state_lease
from drivetrain.spark.run import preparing
from object_store import S3Server
from store_faults import Fault, FaultyStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, KEYS = 600, 3
ELSEWHERE = "continues from the copy of the newest checkpoint"


def counted(bucket: str, rate: float | None) -> Application:
    """Every message, and a count for each key."""
    app = Application("counted")
    columns = {"key": f"cast(id % {KEYS} as string)"}
    made = app.read(sources.generate(rows=ROWS, rate_per_s=rate, columns=columns), name="made")
    made.sink(sinks.parquet(f"s3://{bucket}/each"), name="each")
    counts = made.group_by("key").aggregate(step="count", n=agg.count())
    counts.sink(sinks.parquet(f"s3://{bucket}/counts"), name="counts")
    return app


def config(s3: S3Server, bucket: str, machine: Path, endpoint: str | None = None, **more: str) -> Config:
    sets = {
        "state.dir": f"s3://{bucket}/states",
        "state.work-dir": str(machine),
        "checkpoint.interval": "300 ms",
        "spark.master": "local[2]",
        "run.max-batch-rows": "60",
    }
    return Config.load(None, {}, s3.sets(endpoint) | sets | more)


def require_exact(bucket: Path) -> None:
    assert sorted(row["id"] for row in rows_in(bucket / "each")) == list(range(ROWS))
    counts = sorted((row["key"], row["n"]) for row in rows_in(bucket / "counts"))
    assert counts == [(str(key), ROWS // KEYS) for key in range(KEYS)]


def wait_for(what: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are short."""
    monkeypatch.setattr(continuation_watch, "LOOK_S", 0.2)
    monkeypatch.setattr(state_lease, "LEASE_S", 2.0)
    monkeypatch.setattr(state_lease, "_LOOK_S", 0.3)


def test_any_machine_continues_with_the_state_and_the_one_that_runs_is_left_alone(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("anywhere")
    here, elsewhere = (config(s3, "anywhere", tmp_path / name) for name in ("here", "elsewhere"))
    with start(counted("anywhere", 150), here) as running:
        wait_for(lambda: len(list((bucket / "each").glob("part-*"))) > 1)
        with pytest.raises(UnavailableError, match="already running"):
            run(counted("anywhere", None), elsewhere)
        assert running.is_running
        place = savepoint("counted", config=here)
        running.stop()
    assert running.wait().outcome is RunOutcome.STOPPED
    assert place.startswith("s3://anywhere/states/savepoints/counted-")
    with pytest.raises(UserError, match="already has a state in the store"):
        run(counted("anywhere", None), elsewhere, from_savepoint=place)

    began_s, notices = time.monotonic(), Notices()
    changed = counted("anywhere", None)  # its graph is not that of the version in force, which has a rate
    result = run(changed, elsewhere, notices, version="in-force")
    assert result.outcome is RunOutcome.FINISHED
    assert sum(ELSEWHERE in text for text in notices.texts) == 1
    assert time.monotonic() - began_s < 60
    require_exact(bucket)

    for name in ("here", "elsewhere", "third"):  # one of them has an older state, one has none
        again = Notices()
        machine = config(s3, "anywhere", tmp_path / name)
        outcome = run(counted("anywhere", None), machine, again).outcome
        assert outcome is RunOutcome.ALREADY_FINISHED
        assert not again.texts
    require_exact(bucket)


@pytest.mark.nightly("test_copied_checkpoints has the refusal")
def test_a_store_that_is_empty_again_is_not_taken_for_a_new_state(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("emptied")
    here = config(s3, "emptied", tmp_path / "here")
    with start(counted("emptied", 150), here) as running:
        wait_for(lambda: len(list((bucket / "each").glob("part-*"))) > 1)
        running.stop()
    shutil.rmtree(bucket / "states")
    with pytest.raises(InputError, match="no longer in the store"):
        run(counted("emptied", None), here)


@pytest.mark.nightly("the tests of the store disturb single requests, and simulations end between any two")
@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_fails_again_and_again_costs_no_result(
    spark: SparkSession, s3: S3Server, tmp_path: Path, seed: int
) -> None:
    name, random = f"failing-{seed}", Random(seed)
    bucket = s3.bucket(name)
    kinds = [Fault.BUSY, Fault.LOST_ANSWER, Fault.CUT_BODY, Fault.SILENCE]
    with FaultyStore(s3.endpoint, silence_s=5.5) as proxy:
        proxy.plan = lambda *_: (
            random.choices(kinds, (6, 6, 3, 0.3))[0] if random.random() < 0.15 else Fault.NONE
        )
        here = config(s3, name, tmp_path / "here", proxy.endpoint)
        with start(counted(name, 30), here) as running:
            wait_for(lambda: len(list((bucket / "each").glob("part-*"))) > 1 or not running.is_running)
            assert running.is_running, running.wait()
            proxy.plan = lambda method, path: (
                Fault.REFUSED if method == "PUT" and "/states/" in path else Fault.NONE
            )
            time.sleep(2)  # the state cannot be written for a while
            proxy.plan = lambda *_: random.choice(kinds[:3]) if random.random() < 0.1 else Fault.NONE
            assert running.is_running
            running.stop()
        shutil.rmtree(tmp_path / "here")
        elsewhere = config(s3, name, tmp_path / "elsewhere", proxy.endpoint)
        assert run(counted(name, None), elsewhere).outcome is RunOutcome.FINISHED
        assert all(proxy.faults[kind] for kind in kinds[:3])
    require_exact(bucket)


class LostHereError(Exception):
    """The machine is lost at this point."""


def test_a_replay_goes_on_elsewhere_though_its_machine_is_lost_before_its_first_checkpoint(
    spark: SparkSession, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(rate: float | None) -> Application:
        app = Application("timed")
        made = app.read(sources.generate(rows=ROWS, every="1 s", rate_per_s=rate), name="made")
        made.sink(sinks.parquet("s3://replayed/each"), name="each")
        return app

    bucket = s3.bucket("replayed")
    here, elsewhere = (config(s3, "replayed", tmp_path / name) for name in ("here", "elsewhere"))
    with start(timed(150), here) as running:
        wait_for(lambda: len(list((bucket / "each").glob("part-*"))) > 1)
        running.stop()
    with pytest.raises(UserError, match="already has a state in the store"):
        run(timed(None), elsewhere, replay_from=0)

    def lost(_sinks: object) -> None:
        raise LostHereError

    with monkeypatch.context() as patched:
        patched.setattr(preparing, "publish_prepared", lost)
        with pytest.raises(LostHereError):
            run(timed(None), here, replay_from=0)
    shutil.rmtree(tmp_path / "here")
    notices = Notices()
    assert run(timed(None), elsewhere, notices).outcome is RunOutcome.FINISHED
    assert sum(ELSEWHERE in text for text in notices.texts) == 1
    former, new = (
        [id for file in files for id in pq.read_table(file)["id"].to_pylist()]
        for files in _by_life(bucket / "each")
    )
    assert sorted(new) == list(range(ROWS)), "the new life is complete"
    assert former
    assert len(former) == len(set(former)), "and the former one has shown nothing twice"


def _by_life(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of the first life, and those of the second."""
    files = sorted(folder.glob("part-*"))
    return [f for f in files if "-life" not in f.name], [f for f in files if "-life2-" in f.name]
