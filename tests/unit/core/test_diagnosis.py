"""What is wrong, because of what: rules over situations, without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.core.diagnosis.diagnosis import diagnose, in_short
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import (
    ChannelSituation,
    CheckpointSituation,
    FailedCheckpoint,
    FragmentSituation,
    Machine,
    Problem,
    ProcessorCounts,
    Situation,
)
from nightly_run import examples

FINE = Situation("shop-1", fragments=(FragmentSituation("read"), FragmentSituation("hourly")))


def only(situation: Situation) -> Finding:
    found = diagnose(situation)
    assert len(found) == 1, found
    return found[0]


def channel(producer: str, subscriber: str, **figures: int) -> ChannelSituation:
    return ChannelSituation(producer, subscriber, **figures)


def chain_of_three(**last: object) -> Situation:
    """read → hourly → daily: both upstream fragments wait for the next one to catch up."""
    daily = FragmentSituation(
        "daily", rows_per_s=40, channels=(channel("hourly", "daily", lag_rows=9_000, blocked_ms=70_000),)
    )
    return Situation(
        "shop-1",
        fragments=(
            FragmentSituation(
                "read", blocked_by="hourly", stalled_ms=65_000, waiting_for="room in front of hourly"
            ),
            FragmentSituation(
                "hourly",
                blocked_by="daily",
                stalled_ms=65_000,
                waiting_for="room in front of daily",
                channels=(channel("read", "hourly", blocked_ms=30_000),),
            ),
            replace(daily, **last),  # type: ignore[arg-type]
        ),
    )


def test_nothing_is_wrong() -> None:
    assert diagnose(FINE) == ()
    assert in_short(FINE, ()) == "it processes, and nothing is wrong"


def test_a_block_is_followed_to_its_root_and_told_once() -> None:
    found = diagnose(chain_of_three(batch_ms=45_000))[0]
    assert (found.rule, found.subject, found.severity) == ("blocked", "daily", Severity.WARNING)
    assert found.what == "read, hourly must wait, because daily does not keep up: its batches take 45.0 s"
    assert found.chain == (
        "read waits for hourly to catch up",
        "hourly waits for daily to catch up",
        "its batches take 45.0 s",
    )
    assert "9,000 messages from hourly wait" in found.evidence
    assert found.since_ms == 70_000
    assert only(chain_of_three()).what.endswith("it processes 40/s")


def test_the_root_of_a_block_may_not_run() -> None:
    found = only(chain_of_three(is_running=False, state="deploying"))
    assert "because daily does not keep up: it is deploying" in found.what


def test_fragments_that_wait_for_each_other_do_not_go_on_for_ever() -> None:
    a = FragmentSituation("a", blocked_by="b", stalled_ms=1, waiting_for="fragment b")
    b = FragmentSituation("b", blocked_by="a", stalled_ms=1, waiting_for="fragment a")
    assert {finding.rule for finding in diagnose(Situation("x", fragments=(a, b)))} == {"blocked"}


def test_a_standing_clock_names_the_input_that_holds_it() -> None:
    read = FragmentSituation("read", stalled_ms=90_000, waiting_for="partition 3 of its source")
    hourly = FragmentSituation("hourly", stalled_ms=80_000, waiting_for="fragment read")
    found = only(Situation("shop-1", fragments=(read, hourly)))
    assert found.rule == "clock-stands"
    assert found.subject == "read"
    assert found.what == "the clock stands still, so no window ends: read waits for partition 3 of its source"
    assert found.chain == ("hourly waits for read", "read waits for partition 3 of its source")
    assert "idle_timeout" in found.remedy
    assert (found.since_ms, found.severity) == (90_000, Severity.WARNING)


@pytest.mark.parametrize(
    ("waits_for", "remedy"),
    [("data of its source", "nothing to do"), ("its own work", "batch"), ("its restart", "its error")],
)
def test_a_clock_may_stand_for_other_reasons(waits_for: str, remedy: str) -> None:
    found = only(Situation("s", fragments=(FragmentSituation("f", stalled_ms=10, waiting_for=waits_for),)))
    assert waits_for in found.what
    assert remedy in found.remedy
    assert found.severity is Severity.NOTE


def test_waiting_for_slots_says_how_many_there_are_and_what_to_do() -> None:
    waits = Situation("s", waits_for="slots for 2 executors")
    assert "start a worker" in only(waits).remedy
    full = replace(waits, machines=(Machine("w1", 4, 0), Machine("w2", 4, 0)))
    assert "0 of 8 slots are free on 2 workers" in only(full).what
    assert "another worker" in only(full).remedy
    assert "fewer slots" in only(replace(waits, machines=(Machine("w1", 4, 1),))).remedy
    starting = replace(waits, waits_for="1 executor to start on worker w1")
    assert only(starting).severity is Severity.NOTE


def test_a_failed_application_says_its_error_first() -> None:
    failed = Situation(
        "s", is_over=True, has_failed=True, error=Problem("x", "no such file", "in/", "create it")
    )
    assert in_short(failed, diagnose(failed)) == "s: it has failed: no such file (in/)"
    assert only(failed).remedy == "create it"


def test_a_restart_loop_needs_many_starts_in_a_short_time() -> None:
    error = Problem("user-function", "ZeroDivisionError", remedy="mend it")
    looping = Situation("s", runs_for_ms=60_000, fragments=(FragmentSituation("f", attempt=6, error=error),))
    assert only(looping).what == "it has started 6 times; the last error: ZeroDivisionError"
    assert only(looping).remedy == "mend it"
    assert diagnose(replace(looping, runs_for_ms=30 * 86_400_000)) == ()


def test_checkpoints_that_fail_or_do_not_end() -> None:
    failures = tuple(FailedCheckpoint(1_000 * n, ("hourly",), "no space left") for n in (3, 2, 1))
    failing = replace(FINE, checkpoints=CheckpointSituation(5, 60_000, 800, None, failures))
    assert only(failing).severity is Severity.CRITICAL
    assert (
        "3 checkpoints failed because of hourly: no space left; the last one is 1 min 0 s old"
        in only(failing).what
    )
    stuck = replace(FINE, checkpoints=CheckpointSituation(0, None, None, 200_000))
    assert "none has succeeded" in only(stuck).what
    assert diagnose(replace(FINE, checkpoints=CheckpointSituation(3, 1_000, 500, 900))) == ()


def test_messages_that_are_lost_late_or_set_aside() -> None:
    losing = replace(
        FINE,
        lost=3,
        processors=(ProcessorCounts("a", 1_000, late=50), ProcessorCounts("b", 10_000, 1, 2)),
        fragments=(FragmentSituation("f", channels=(channel("e", "f", losses=3, replays=1),), left_out=4),),
    )
    found = {finding.rule: finding for finding in diagnose(losing)}
    assert set(found) == {"lost-at-source", "late", "dead-letters", "repair", "left-out"}
    assert found["late"].what == "50 of 1,000 messages came too late"
    assert found["repair"].subject == "e → f"
    assert diagnose(losing)[0].rule == "lost-at-source"
    repaired = FragmentSituation("f", channels=(channel("e", "f", losses=3, replays=3),))
    assert diagnose(replace(FINE, fragments=(repaired,))) == ()


def test_much_that_waits_long_batches_and_little_memory() -> None:
    slow = FragmentSituation("f", batch_ms=40_000, lag_rows=1_000_000, rows_per_s=100.0)
    found = {finding.rule: finding for finding in diagnose(Situation("s", fragments=(slow,)))}
    assert (
        found["far-behind"].what
        == "1,000,000 messages wait: at 100/s they take 2 h 46 min, even if no more arrive"
    )
    assert found["long-batches"].evidence == ("last batch 40.0 s", "processes 100/s")
    assert only(replace(FINE, machines=(Machine("w", 2, 1, 100 * 2**20),))).rule == "little-memory"


def test_no_application_master_answers() -> None:
    assert only(Situation("s", answers=False)).rule == "no-application-master"
    assert only(Situation("s", answers=False, epoch=9)).severity is Severity.CRITICAL
    assert diagnose(Situation("s", is_over=True, answers=False)) == ()


NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def fragments(draw: st.DrawFn) -> FragmentSituation:
    return FragmentSituation(
        draw(NAMES),
        is_running=draw(st.booleans()),
        attempt=draw(st.integers(1, 9)),
        batch_ms=draw(st.integers(0, 10**6)),
        rows_per_s=draw(st.floats(0, 1e6)),
        lag_rows=draw(st.none() | st.integers(0, 10**9)),
        stalled_ms=draw(st.integers(0, 10**6)),
        waiting_for=draw(st.none() | NAMES.map("fragment {}".format) | st.text(max_size=9)),
        blocked_by=draw(st.none() | NAMES),
        channels=tuple(draw(st.lists(st.builds(ChannelSituation, NAMES, NAMES), max_size=2))),
    )


@given(st.lists(fragments(), max_size=5), st.booleans(), st.none() | st.text(max_size=20))
@settings(max_examples=examples(200), deadline=None)
def test_any_situation_has_a_diagnosis_the_worst_first(
    given: list[FragmentSituation], is_over: bool, waits_for: str | None
) -> None:
    situation = Situation("s", is_over=is_over, waits_for=waits_for, fragments=tuple(given), runs_for_ms=1)
    found = diagnose(situation)
    assert list(found) == sorted(found, key=lambda finding: finding.severity)
    assert all(finding.what and finding.remedy and finding.subject for finding in found)
    assert in_short(situation, found)
    blocked = [fragment for fragment in given if fragment.blocked_by and not is_over]
    assert any(finding.rule == "blocked" for finding in found) == bool(blocked)
