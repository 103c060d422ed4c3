"""A batch on trial: in which order its outputs are made, and what is computed before any of them shows it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain import Application, Stream, agg, sinks, sources, windows
from drivetrain.connectors.in_process.plain_sinks import NoTarget
from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.core.plan.planner import plan
from drivetrain.spark.batch.batch import Batch, ignore_begun
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.message_counts import Counts


class Frames:
    """Notes what is asked of it; the messages of `bad` cannot be computed."""

    has_letters = False

    def __init__(self, done: list[str], bad: str) -> None:
        self.done, self.bad = done, bad

    def compute(self, ids: set[str] | None = None) -> None:
        for id in sorted({"all"} if ids is None else ids):
            self.done.append(f"compute {id}")
            if self.bad and id in (self.bad, "all"):
                raise ValueError(self.bad)

    def for_sink(self, node: Any) -> str:
        return str(node.inputs[0])

    def log(self, node: Any) -> None:
        self.done.append(f"log {node.inputs[0]}")

    def segments(self, channel: Any, _store: object) -> list[Any]:
        self.done.append(f"segments of {channel.producer}")
        if channel.producer == self.bad:
            raise ValueError(self.bad)
        return []

    def counts_emitted(self, _id: str) -> bool:
        return True

    def add_counts(self, _counts: object) -> None:
        """There are none."""

    def newest(self) -> dict[str, Any]:
        return {}

    def reached(self) -> int:
        return 0


class Sink:
    """Notes what it shows; like Kafka's, one that does not compute first shows a part of a bad batch."""

    def __init__(self, done: list[str], id: str, bad: str, guarantee: str) -> None:
        self.done, self.id, self.bad, self.guarantee = done, id, bad, guarantee

    def write(self, df: str, _number: int) -> int:
        if df == self.bad and self.guarantee == "exactly once":
            raise ValueError(df)
        self.done.append(f"{self.id} shows {df}")
        if df == self.bad:
            raise ValueError(df)
        return 1


class Console(NoTarget, Sink):
    """A sink that may show a batch twice, but never a part of it."""

    computes_first = True


def with_outputs(read: Stream, *names: str) -> None:
    for name in names:
        read.filter("n > 0", name=name).sink(sinks.memory(name), name=f"{name}_out")


def done_by(
    app: Application,
    *,
    bad: str = "",
    whole: bool = True,
    guarantee: str = "exactly once",
    kind: type[Sink] = Sink,
    context: Any = None,
) -> list[str]:
    """What is done in a batch of the first fragment; ends with the error if there is one."""
    done: list[str] = []
    planned = plan(app.graph())
    fragment = planned.fragments[0]
    around: dict[str, Any] = {"handing_over": None, "transactional": False, **(context or {})}
    around["rundir"] = SimpleNamespace(places=SimpleNamespace(first_batch=lambda _id: 0))
    around["plan"] = planned if "plan" not in around else around["plan"](planned)
    compiled: Any = SimpleNamespace(frames=lambda _batch: nullcontext(Frames(done, bad)))
    targets: dict[str, Any] = {s.id: kind(done, s.id, bad, guarantee) for s in planned.sinks}
    stores: dict[str, Any] = {c.id: SimpleNamespace(last_batch=lambda: NO_BATCH) for c in planned.channels}
    letters: Any = None
    branches = Branches(
        SimpleNamespace(**around),  # type: ignore[arg-type]
        fragment,
        compiled,
        targets,
        stores,
        letters,
        Counts(),
    )
    frame: Any = None
    try:
        branches.run(Batch(frame, 1, None, whole=whole), ignore_begun)
    except ValueError:
        done.append("fails")
    return done


@pytest.fixture
def app() -> Application:
    return Application("shop")


@pytest.fixture
def read(app: Application) -> Stream:
    return app.read(sources.generate(rate_per_s=1, every="1 s", columns={"n": "id"}), name="read")


def test_the_only_sink_is_computed_once(app: Application, read: Stream) -> None:
    with_outputs(read, "a")
    assert done_by(app) == ["a_out shows a"]
    assert done_by(app, bad="a") == ["fails"]


def test_what_a_second_sink_reads_is_computed_before_the_first_one_shows_something(
    app: Application, read: Stream
) -> None:
    with_outputs(read, "a", "b")
    assert done_by(app) == ["compute b", "a_out shows a", "b_out shows b"]
    assert done_by(app, bad="b") == ["compute b", "fails"]
    assert done_by(app, bad="a") == ["compute b", "fails"]
    assert done_by(app, bad="b", whole=False) == ["a_out shows a", "fails"], "the trial is over"


def test_a_channel_has_its_segments_before_a_sink_shows_something(app: Application, read: Stream) -> None:
    with_outputs(read, "a")
    hourly = read.filter("n > 1", name="c").window(windows.tumbling("1 h")).aggregate(n=agg.count())
    hourly.sink(sinks.memory("hourly"))
    assert done_by(app) == ["segments of c", "a_out shows a"]
    assert done_by(app, bad="c") == ["segments of c", "fails"]
    assert done_by(app, whole=False) == ["a_out shows a", "segments of c"]


def test_a_sink_that_may_show_a_part_is_no_proof(app: Application, read: Stream) -> None:
    with_outputs(read, "a")
    assert done_by(app, guarantee="at least once") == ["compute a", "a_out shows a"]
    assert done_by(app, guarantee="at least once", bad="a") == ["compute a", "fails"]
    assert done_by(app, guarantee="at least once", kind=Console) == ["a_out shows a"]


def test_a_log_that_comes_first_is_a_proof(app: Application, read: Stream) -> None:
    read.filter("n > 0", name="a").log()
    with_outputs(read, "b")
    assert done_by(app) == ["compute b", "log a", "b_out shows b"]


def test_all_is_computed_first_where_a_sink_that_has_begun_decides(app: Application, read: Stream) -> None:
    with_outputs(read, "a")
    lossy = {"plan": lambda planned: SimpleNamespace(**{**vars_of(planned), "delivery": AT_MOST_ONCE})}
    assert done_by(app, context=lossy) == ["compute all", "a_out shows a"]
    assert done_by(app, context=lossy, bad="a") == ["compute all", "fails"]


def vars_of(planned: Any) -> dict[str, Any]:
    return {"graph": planned.graph, "outputs": planned.outputs, "fragments": planned.fragments}


def test_one_sink_is_a_proof_for_all_that_read_the_same(app: Application, read: Stream) -> None:
    a = read.filter("n > 0", name="a")
    a.sink(sinks.memory("one"), name="one")
    a.sink(sinks.memory("two"), name="two")
    assert done_by(app) == ["one shows a", "two shows a"]


def test_nothing_is_computed_for_channels_alone(app: Application, read: Stream) -> None:
    hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count())
    hourly.sink(sinks.memory("hourly"))
    read.window(windows.tumbling("2 h")).aggregate(n=agg.count()).sink(sinks.memory("longer"))
    assert done_by(app) == ["segments of read", "segments of read"]
