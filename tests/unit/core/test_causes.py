"""What takes most of a batch's time, as the figures of the batch show it, and the rules that use it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.diagnosis.causes import Part, cause_of
from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import (
    CheckpointSituation,
    FragmentSituation,
    Master,
    Situation,
)
from drivetrain.core.job.fragment_figures import FragmentFigures, LastBatch, Phases

EVEN = Phases(source_ms=100, planning_ms=100, computing_ms=100, channel_ms=100, log_ms=100, other_ms=100)


def of(last: LastBatch, cores: int = 2) -> FragmentFigures:
    return FragmentFigures(last=last, cores=cores)


@pytest.mark.parametrize(
    ("last", "part", "what"),
    [
        (
            LastBatch(phases=Phases(computing_ms=400, sink_ms=900), sinks_ms={"a": 100, "db": 800}),
            Part.SINK,
            "writing to db",
        ),
        (
            LastBatch(phases=Phases(computing_ms=1_000), python_ms=900, python_longest_ms=900),
            Part.PYTHON,
            "Python functions and Tasks",
        ),
        (LastBatch(phases=Phases(computing_ms=1_000), python_ms=1_900, python_tasks=8), Part.PYTHON, ""),
        (LastBatch(phases=Phases(computing_ms=1_000), state_ms=1_800), Part.STATE, "storing state"),
        (
            LastBatch(phases=Phases(computing_ms=1_000), python_ms=1_800, state_ms=1_900),
            Part.PYTHON,
            "Python",
        ),
        (LastBatch(phases=Phases(computing_ms=1_000), python_ms=400), Part.SPARK, "Spark's own"),
        (LastBatch(phases=msgspec.structs.replace(EVEN, source_ms=300)), Part.SOURCE, "new input"),
        (LastBatch(phases=msgspec.structs.replace(EVEN, planning_ms=300)), Part.PLANNING, "planning"),
        (LastBatch(phases=msgspec.structs.replace(EVEN, channel_ms=300)), Part.CHANNEL, "channels"),
        (LastBatch(phases=msgspec.structs.replace(EVEN, log_ms=300)), Part.LOG, "offsets and commits"),
    ],
    ids=lambda value: value.value if isinstance(value, Part) else "",
)
def test_the_longest_part_is_the_cause(last: LastBatch, part: Part, what: str) -> None:
    cause = cause_of(of(last))
    assert cause is not None
    assert cause.part is part
    assert what in cause.what
    assert cause.remedy


def test_before_the_first_batch_there_is_no_cause() -> None:
    assert cause_of(FragmentFigures()) is None
    assert cause_of(of(LastBatch(phases=Phases(waiting_ms=5_000)))) is None


DURATIONS = st.integers(0, 10**6)


@given(
    st.builds(
        LastBatch,
        phases=st.builds(Phases, *[DURATIONS] * len(Phases.__struct_fields__)),
        sinks_ms=st.dictionaries(st.sampled_from("ab"), DURATIONS),
        python_ms=DURATIONS,
        python_longest_ms=DURATIONS,
        python_tasks=st.integers(0, 9),
        state_ms=DURATIONS,
    ),
    st.integers(0, 64),
)
def test_a_cause_is_a_part_of_its_batch(last: LastBatch, cores: int) -> None:
    cause = cause_of(of(last, cores))
    if cause is not None:
        assert 0 < cause.ms <= cause.of_ms == last.phases.together_ms
        assert cause.what in cause.sentence


SLOW_SINK = of(LastBatch(phases=Phases(computing_ms=4_000, sink_ms=40_000), sinks_ms={"to-db": 40_000}))


def only(situation: Situation) -> Finding:
    (found,) = diagnose(situation)
    return found


def test_long_batches_name_what_takes_long() -> None:
    found = only(Situation("s", fragments=(FragmentSituation("f", batch_ms=44_000, figures=SLOW_SINK),)))
    assert found.what == "its last batch took 44.0 s: results are late by that much"
    assert found.chain == (
        "its batches take 44.0 s",
        "40.0 s of the last 44.0 s (90 %) went to writing to to-db",
    )
    assert found.remedy == "look at what the sink writes to: it is slow, or far away"


def test_an_interval_of_real_time_mode_is_not_a_long_batch() -> None:
    meant = msgspec.structs.replace(SLOW_SINK, trigger_ms=60_000)
    fragment = FragmentSituation("f", batch_ms=60_500, figures=meant)
    assert diagnose(Situation("s", fragments=(fragment,))) == ()
    late = only(Situation("s", fragments=(replace(fragment, batch_ms=100_000),)))
    assert "though a batch is meant to take 1 min 0 s" in late.what


def test_the_root_of_a_block_says_what_it_does_all_the_time() -> None:
    reader = FragmentSituation("read", blocked_by="store", figures=FragmentFigures(blocked_now_ms=8_000))
    store = FragmentSituation("store", rows_per_s=40, batch_ms=2_000, figures=SLOW_SINK)
    found = only(Situation("s", fragments=(reader, store)))
    assert found.severity is Severity.WARNING
    assert found.since_ms == 8_000
    assert found.chain[-1] == ("it processes 40/s; 40.0 s of the last 44.0 s (90 %) went to writing to to-db")


def test_a_partition_with_most_of_the_messages() -> None:
    even = {f"read/{n}": 5_000 for n in range(4)}
    skewed = FragmentFigures(partition_rows={**even, "read/2": 900_000})
    found = only(Situation("s", fragments=(FragmentSituation("f", figures=skewed),)))
    assert found.rule == "skew"
    assert found.what == (
        "partition read/2 gives 900,000 of the last 915,000 messages of 4 partitions: "
        "one task has most of the work"
    )
    for rows in (even, {"read/0": 900_000}, {"read/0": 90, "read/1": 1}, {}):
        calm = FragmentFigures(partition_rows=rows)
        assert diagnose(Situation("s", fragments=(FragmentSituation("f", figures=calm),))) == ()


def test_a_task_that_the_others_wait_for() -> None:
    last = LastBatch(python_ms=10_000, python_longest_ms=9_500, python_tasks=4)
    fragment = FragmentSituation("f", batch_ms=12_000, figures=of(last))
    found = only(Situation("s", fragments=(fragment,)))
    assert (found.rule, found.severity) == ("skew", Severity.WARNING)
    assert "the longest of 4 tasks with Python code took 9.5 s of 10.0 s" in found.what


def test_partitions_that_the_clock_ignores_are_named() -> None:
    silent = FragmentFigures(silent_partitions=("read/3",))
    found = only(Situation("s", fragments=(FragmentSituation("f", figures=silent),)))
    assert (
        found.what
        == "partition read/3 has given nothing for longer than idle_timeout: the clock ignores them"
    )
    many = FragmentFigures(silent_partitions=tuple(f"read/{n}" for n in range(9)))
    told = only(Situation("s", fragments=(FragmentSituation("f", figures=many),))).what
    assert told.startswith("partitions read/0, read/1, read/2, read/3, read/4 … have given nothing")


def test_a_checkpoint_is_old_after_three_intervals_but_not_within_seconds() -> None:
    busy = FragmentSituation("f", rows_per_s=3.0)

    def found(fragment: FragmentSituation = busy, **figures: int | None) -> list[str]:
        checkpoints = CheckpointSituation(3, **figures)  # type: ignore[arg-type]
        situation = Situation("s", fragments=(fragment,), checkpoints=checkpoints, runs_for_ms=10**6)
        return [f.rule for f in diagnose(situation)]

    assert found(last_ago_ms=31_000, interval_ms=10_000) == ["checkpoint-old"]
    assert found(last_ago_ms=29_000, interval_ms=10_000) == []
    assert found(last_ago_ms=14_000, interval_ms=1_000) == []
    assert found(last_ago_ms=10**6, interval_ms=None) == []
    assert found(last_ago_ms=None, interval_ms=10_000) == ["checkpoint-old"]
    assert found(last_ago_ms=200_000, interval_ms=10_000, running_ms=199_000) == ["checkpoint-stuck"]
    idle, waits = FragmentSituation("f"), FragmentSituation("f", lag_rows=1)
    assert found(idle, last_ago_ms=31_000, interval_ms=10_000) == []
    assert found(waits, last_ago_ms=31_000, interval_ms=10_000) == ["checkpoint-old"]


def test_a_fragment_that_has_finished_does_not_run() -> None:
    fragments = tuple(FragmentSituation(state, state=state) for state in ("running", "finished"))
    assert [f.id for f in Situation("s", fragments=fragments).running()] == ["running"]


@pytest.mark.parametrize(
    ("masters", "rule"),
    [
        ((Master("a", True), Master("b"), Master("c")), None),
        ((Master("a", True),), None),
        ((Master("a", True), Master("b")), None),
        ((Master("a", True), Master("b"), Master("c", silent_ms=None)), "no-spare-master"),
        ((Master("a"), Master("b", silent_ms=60_000), Master("c", silent_ms=None)), "no-quorum"),
        ((Master("a"), Master("b", True, 60_000), Master("c", silent_ms=None)), "no-quorum"),
        ((Master("a"), Master("b"), Master("c")), "no-quorum"),
    ],
    ids=["three", "one", "two", "two of three", "one of three", "the leader is silent", "an election"],
)
def test_a_majority_of_masters_is_needed(masters: tuple[Master, ...], rule: str | None) -> None:
    assert [found.rule for found in diagnose(Situation("s", masters=masters))] == ([rule] if rule else [])


def test_hardly_any_disk_left() -> None:
    assert diagnose(Situation("s", disk_free=50 * 2**30, disk_total=100 * 2**30)) == ()
    assert only(Situation("s", disk_free=2 * 2**30, disk_total=100 * 2**30)).severity is Severity.WARNING
    assert only(Situation("s", disk_free=2**20)).severity is Severity.CRITICAL
