"""`drivetrain apps`, `show`, `logs`, `kill`, `restart`: what they print is what the cluster says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from scripted_cluster import ScriptedCluster, world

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import (
    ErrorView,
    ExecutorView,
    FragmentView,
    JobState,
    OutputView,
    Status,
)
from drivetrain.core.channel.channel_progress import ChannelProgress

pytestmark = pytest.mark.timeout(60)

HOUR_MS = 3_600_000
ERROR = ErrorView(
    "operator",
    "the function raised ValueError",
    where="parse (wc.py:3)",
    got="'x'",
    remedy="correct the function",
    user_traceback='File "wc.py", line 3, in parse\nValueError: mine',
)
RUNNING = world.status_of(
    state=JobState.RUNNING,
    clock_ms=1_357_016_400_000,
    fragments=(
        FragmentView("lines", "running", 2, "x-1", "w1", 3, 12_345, 1_500.0, 250, 700, 1_357_016_400_000),
        FragmentView(
            "count",
            "running",
            1,
            error=ERROR,
            channels=(ChannelProgress("lines--count", "lines", "count", None, 1_234, 12_345_678, losses=2),),
            watermark_delay_ms=2_000,
            stalled_ms=12_000,
            waiting_for="lines",
        ),
    ),
    executors=(ExecutorView("x-1", "w1", "here", 4711, 2, "running", "local[2]"),),
    outputs=(OutputView("out", "parquet out/", 37, "exactly once"),),
    counts={"lines": (0, 12_345, 0, 0), "out": (37, 0, 4, 2)},
    accumulators={"bad lines": 3, "seconds": 1.5},
    fraction=0.427,
    errors=(ERROR,),
    change="version 3 is on trial, waiting for messages in count",
)

APPS = """\
 name   id      state           since (UTC)           clock (UTC)           workers
 ──────────────────────────────────────────────────────────────────────────────────
 wc     wc-3    pending         1970-01-01 02:00:00   –                     –
                no free slots
 wc     wc-2    active          1970-01-01 01:00:00   2013-01-01 05:00:00   w1, w2
 old    old-1   killed          1970-01-01 00:00:30   –                     –
"""

SHOW = """\
wc-2 active
  name                wc
  file                wc.py  (code 000000000000)
  settings            input=/some/text
  submitted           1970-01-01 01:00:00 UTC
  clock               2013-01-01 05:00:00
  application master  number 2 on w1
  job                 running, for 2.5 s, 42 % of its input
  change              version 3 is on trial, waiting for messages in count

 warning  lines → count: 2 losses found in the channel, 0 repaired so far: count waits for the rest
 warning  out: 4 of 37 messages came too late
 warning  out: 2 messages could not be processed
 note  count: the clock stands still, so no window ends: count waits for lines (for 12.0 s)

 fragment   state     attempt   messages   messages/s   lag    batch   clock (UTC)           delay   executor
 ────────────────────────────────────────────────────────────────────────────────────────────────────────────
 lines      running   2           12,345      1.5 k/s   700   250 ms   2013-01-01 05:00:00       –   x-1
 count      running   1                0            –     –        –   –                     2.0 s   –



 channel           lag     bytes   behind   unacked   blocked   losses   replays   on disk   clock (UTC)
 ───────────────────────────────────────────────────────────────────────────────────────────────────────
 lines → count   1,234   12.3 MB        –         0         –        2         0       0 B   –


 executor   state     worker   host   process   slots   Spark
 ───────────────────────────────────────────────────────────────
 x-1        running   w1       here   4711      2       local[2]


 processor   in      out   late   dead-lettered
 ──────────────────────────────────────────────
 lines        0   12,345      0               0
 out         37        0      4               2


 output   messages   where          guarantee
 ───────────────────────────────────────────────
 out            37   parquet out/   exactly once


 accumulator   value
 ───────────────────
 bad lines         3
 seconds         1.5

1 error
  parse (wc.py:3): the function raised ValueError
    got: 'x'
    File "wc.py", line 3, in parse
    ValueError: mine
    remedy: correct the function
"""


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        yield made


@pytest.fixture
def running(cluster: ScriptedCluster) -> ScriptedCluster:
    """One application that is over, one that runs, one that waits."""
    script = cluster.world
    old = msgspec.structs.replace(world.SPEC, name="old")
    script.put(world.view_of("old-1", spec=old, state=ApplicationState.KILLED, ended_ms=30_000))
    script.put(
        world.view_of(
            "wc-2",
            state=ApplicationState.ACTIVE,
            epoch=2,
            submitted_ms=HOUR_MS,
            worker="w1-id",
            clock_ms=1_357_016_400_000,
            app_master=cluster.app_master(msgspec.structs.replace(RUNNING, app_id="wc-2", epoch=2)),
        )
    )
    script.put(world.view_of("wc-3", submitted_ms=2 * HOUR_MS, why="no free slots"))
    cluster.worker("w1", {"app-master-2": b"it begins\n"}, "wc-2")
    cluster.worker("w2", {"executor-1": b"one\ntwo\n"}, "wc-2")
    return cluster


def lines(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.splitlines() if line.strip()]


def test_apps_lists_the_newest_first_with_state_clock_and_workers(running: ScriptedCluster, command) -> None:
    result = command("apps", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    assert lines(result.stdout) == lines(APPS)


def test_apps_as_json_has_the_same(running: ScriptedCluster, command) -> None:
    data = json.loads(command("apps", "--masters", running.masters, "--json").stdout)
    assert [one["id"] for one in data["applications"]] == ["wc-3", "wc-2", "old-1"]
    active = data["applications"][1]
    assert (active["state"], active["workers"], active["clock_ms"]) == (
        "active",
        ["w1", "w2"],
        1_357_016_400_000,
    )


def test_apps_without_any_says_how_to_start_one(cluster: ScriptedCluster, command) -> None:
    assert "drivetrain submit FILE" in command("apps", "--masters", cluster.masters).stdout


def test_show_prints_states_attempts_clocks_rates_executors_errors_and_outputs(
    running: ScriptedCluster, command
) -> None:
    result = command("show", "wc-2", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    assert lines(result.stdout) == lines(SHOW)


def test_explain_says_what_is_wrong_why_and_what_to_do(running: ScriptedCluster, command) -> None:
    result = command("explain", "wc-2", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    printed = lines(result.stdout)
    assert (
        printed[0]
        == "wc-2: lines → count: 2 losses found in the channel, 0 repaired so far: count waits for the rest"
    )
    assert "  → count waits for lines" in printed
    assert "  figures: 1,234 messages from lines wait" in printed
    assert "  remedy: look at them: drivetrain dead-letters" in printed
    shown = command("show", "wc-2", "--masters", running.masters).stdout
    assert all(line in shown for line in printed if line.startswith((" warning", " note", " critical")))


def test_explain_as_json_and_its_exit_code(running: ScriptedCluster, command) -> None:
    data = json.loads(command("explain", "wc-2", "--masters", running.masters, "--json").stdout)
    assert [finding["rule"] for finding in data["findings"]] == [
        "repair",
        "late",
        "dead-letters",
        "clock-stands",
    ]
    assert data["findings"][0]["guide"] == "docs/guide/diagnosis.md#repair"
    assert data["findings"][3]["chain"] == ["count waits for lines"]
    assert data["findings"][0]["severity"] == "warning"
    waiting = command("explain", "wc-3", "--masters", running.masters)
    assert waiting.exit_code == 0
    assert "no application master answers" in waiting.stdout


def test_explain_without_a_leader_names_the_masters_that_are_missing(command) -> None:
    with ScriptedCluster() as cluster:
        cluster.world.lead(None)
        told = command("explain", "wc", "--masters", cluster.masters, "--set", "client.timeout=1 s")
    assert told.exit_code == 1
    assert "masters: no master leads: 2 of 2 masters answer, 2 are needed" in " ".join(told.stdout.split())


def test_show_as_json_names_every_field(running: ScriptedCluster, command) -> None:
    data = json.loads(command("show", "wc-2", "--masters", running.masters, "--json").stdout)
    assert data["id"] == "wc-2"
    assert data["status"]["state"] == "running"
    assert data["status"]["fragments"][0]["attempt"] == 2
    assert data["status"]["fragments"][0]["figures"]["counters"]["phases"]["sink_ms"] == 0
    assert data["findings"][0]["rule"] == "repair"
    assert data["status"]["errors"][0]["user_traceback"].endswith("mine")
    assert data["status"]["accumulators"] == {"bad lines": 3, "seconds": 1.5}


def test_show_of_what_waits_and_of_what_is_over(running: ScriptedCluster, command) -> None:
    waiting = command("show", "wc-3", "--masters", running.masters)
    assert "no free slots" in waiting.stdout
    assert "no application master answers" in waiting.stdout
    over = command("show", "old", "--masters", running.masters)
    assert "old-1 killed" in over.stdout
    unknown = command("show", "odl", "--masters", running.masters)
    assert unknown.exit_code == 2
    assert 'did you mean "old' in unknown.stderr


def test_show_watch_ends_with_the_application(running: ScriptedCluster, command) -> None:
    view = running.world.applications["wc-2"]
    last = msgspec.structs.replace(world.finished("wc-2", 2), counts={})

    def end() -> None:
        view.app_master.tell(Status(last))
        running.world.end("wc-2", last)

    running.later(lambda: bool(view.app_master.cell.actor.followers), end)
    result = command("show", "wc-2", "--watch", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    assert "lines: restarting" in result.stderr or "lines: running" in result.stderr
    assert "wc-2 succeeded" in result.stdout


def test_logs_of_all_processes_are_told_apart_and_those_of_one_are_as_written(
    running: ScriptedCluster, command
) -> None:
    every = command("logs", "wc-2", "--masters", running.masters)
    assert every.stdout == "app-master-2 | it begins\nexecutor-1 | one\nexecutor-1 | two\n"
    one = command("logs", "wc-2", "--process", "executor-1", "--masters", running.masters)
    assert one.stdout == "one\ntwo\n"
    data = json.loads(command("logs", "wc-2", "--json", "--masters", running.masters).stdout)
    assert data["logs"][1] == {"process": "executor-1", "worker": "w2", "text": "one\ntwo\n"}
    missing = command("logs", "wc-2", "--process", "executor-9", "--masters", running.masters)
    assert missing.exit_code == 2
    assert "app-master-2, executor-1" in missing.stderr


def test_logs_follow_until_the_application_is_over(running: ScriptedCluster) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "drivetrain.cli", "logs", "wc-2", "-f", "--masters", running.masters],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "app-master-2 | it begins\n"
        running.world.change("wc-2", state=ApplicationState.SUCCEEDED)
        # Not `communicate`, which does not see what was buffered with the first line.
        assert process.stdout.read() == "executor-1 | one\nexecutor-1 | two\n"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_kill_and_restart_say_what_they_did_and_what_cannot_be(running: ScriptedCluster, command) -> None:
    script = running.world
    result = command("kill", "wc-2", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("wc-2 is killed")
    assert script.applications["wc-2"].state is ApplicationState.KILLED
    again = command("kill", "wc-2", "--masters", running.masters)
    assert again.exit_code == 2
    assert "already ended" in again.stderr
    restarted = command("restart", "wc-2", "--masters", running.masters)
    assert "wc-2 starts again" in restarted.stdout
    assert script.applications["wc-2"].state is ApplicationState.PENDING
    data = json.loads(command("restart", "old", "--json", "--masters", running.masters).stdout)
    assert (data["id"], data["state"]) == ("old-1", "pending")


def test_wait_says_where_the_clock_is_and_what_is_over(running: ScriptedCluster, command) -> None:
    running.world.change("wc-2", clock_ms=90_000)
    line = ("wait", "wc-2", "--masters", running.masters)
    reached = command(*line, "--clock", "1970-01-01T00:01")
    assert reached.exit_code == 0, reached.stderr
    assert reached.stdout == "the clock is at 1970-01-01 00:01:30\n"
    assert json.loads(command(*line, "--clock", "60000", "--json").stdout) == {"clock_ms": 90_000}
    late = command(*line, "--clock", "2030-01-01", "--timeout", "1s")
    assert late.exit_code == 4
    assert "not there yet" in late.stderr
    assert command(*line, "--timeout", "1s").exit_code == 4
    over = command("wait", "old", "--clock", "2030-01-01", "--masters", running.masters)
    assert over.exit_code == 2
    assert "has ended" in over.stderr
    assert "old-1 is" in command("wait", "old", "--masters", running.masters).stdout


def test_replay_asks_before_it_gives_state_up_and_says_what_it_did(running: ScriptedCluster, command) -> None:
    script = running.world
    line = ("replay", "wc-2", "--from", "2013-03-01T00:00", "--masters", running.masters)
    refused = command(*line, input="n\n")
    assert refused.exit_code == 1
    assert "give its state up" in refused.stderr
    assert script.applications["wc-2"].spec.replay_from_ms is None
    result = command(*line, "--yes")
    assert result.exit_code == 0, result.stderr
    assert "wc-2 is replayed from 2013-03-01 00:00:00 UTC" in result.stdout
    assert script.applications["wc-2"].state is ApplicationState.PENDING
    assert script.applications["wc-2"].spec.replay_from_ms == 1_362_096_000_000
    shown = command("show", "wc-2", "--masters", running.masters)
    assert "to begin from 2013-03-01 00:00:00 UTC" in shown.stdout
    restarted = command("restart", "wc-2", "--masters", running.masters)
    assert restarted.exit_code == 0, restarted.stderr
    assert script.applications["wc-2"].spec.replay_from_ms is None, "a restart goes on with what there is"


def test_kill_wait_returns_when_no_worker_runs_anything_of_it(running: ScriptedCluster, command) -> None:
    script = running.world

    def gone() -> None:
        script.workers[:] = [msgspec.structs.replace(worker, launched=()) for worker in script.workers]

    running.later(lambda: script.applications["wc-2"].state.is_over, gone)
    result = command("kill", "wc-2", "--wait", "--masters", running.masters)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "wc-2 is killed\n"
    assert not any(worker.launched for worker in script.workers)
