"""`drivetrain submit`: validated here, accepted there, watched until the end or until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from scripted_cluster import ScriptedCluster, world

from drivetrain.cluster.messages.applications import ApplicationState, Priority
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobState, Status
from free_ports import free_port

WITH_NEIGHBOUR = """
from drivetrain.api import Application, sinks, sources
import neighbour

app = Application("count")
where = app.setting("input", default=neighbour.WHERE)
app.read(sources.text(where), name="lines").sink(sinks.none(), name="out")
"""


APPLICATION = """
from drivetrain.api import Application, sinks, sources

app = Application("count")
app.read(sources.text(app.setting("input", default="/some/text")), name="lines").sink(sinks.none())
"""

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as made:
        yield made


def test_detached_returns_once_it_is_accepted_with_the_code_and_the_settings(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    application_file.write_text(WITH_NEIGHBOUR)
    Path("neighbour.py").write_text("WHERE = '/some/text'\n")
    result = command(
        *("submit", "count.py", "--detached", "--masters", cluster.masters, "--name", "mine"),
        *("--set", "input=/other", "--set", "run.max-batch-rows=7", "--priority", "high", "--fresh"),
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "accepted as mine-1\n"
    assert "drivetrain show mine-1 --watch" in result.stderr
    spec = cluster.world.applications["mine-1"].spec
    assert (spec.name, spec.file, spec.target) == ("mine", "count.py", None)
    assert spec.settings == {"input": "/other"}
    assert spec.config == {"run.max-batch-rows": "7"}, "the list of masters is the client's own business"
    assert spec.directory == os.getcwd()
    assert (spec.priority, spec.fresh) == (Priority.HIGH, True)
    assert cluster.world.code[cluster.world.leader].keys() == {spec.code}


def test_a_file_with_an_application_master_of_its_own_is_submitted_as_such(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    shell = Path(__file__).parents[3] / "examples" / "distributed_shell.py"
    given = ("--detached", "--masters", cluster.masters, "--set", "command=hostname")
    result = command("submit", str(shell), *given)
    assert result.exit_code == 0, result.stderr
    spec = cluster.world.applications["distributed_shell-1"].spec
    assert (spec.app_master, spec.settings) == ("distributed_shell:Shell", {"command": "hostname"})
    wrong = command("submit", str(shell), *given, "--set", "comand=ls")
    assert wrong.exit_code == 2
    assert 'did you mean "command"' in wrong.stderr


def test_what_is_wrong_with_the_application_is_told_before_anything_is_sent(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    application_file.write_text("def load():\n    raise ValueError('mine')\nload()\n")
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 2
    assert "ValueError: mine" in result.stderr
    assert "in load" in result.stderr

    application_file.write_text("from drivetrain import Application\napp = Application('empty')\n")
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 2

    application_file.write_text("import that_is_not_there\n")
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 2
    assert "that_is_not_there" in result.stderr
    application_file.write_text(APPLICATION)
    copied = ("--set", "checkpoint.copy-to=s3://bucket/x")
    remote = ("--set", "state.dir=s3://bucket/x")
    for wrong in (
        copied,
        (*remote, "--replay-from", "2026-01-01"),
        ("--set", "inptu=x"),
        ("--name", "seven words"),
        ("--archive", "missing.zip"),
    ):
        result = command("submit", "count.py", "--masters", cluster.masters, *wrong)
        assert result.exit_code == 2, wrong
        assert "remedy" in result.stderr, wrong
    assert not cluster.world.received


def test_a_name_that_is_taken_is_told_with_both_ways_out(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    cluster.world.put(world.view_of("count-1", spec=msgspec.structs.replace(world.SPEC, name="count")))
    result = command("submit", "count.py", "--detached", "--masters", cluster.masters)
    assert result.exit_code == 2
    assert "count-1 has the name count" in result.stderr
    assert "--name" in result.stderr
    assert "drivetrain kill count" in result.stderr


def test_no_master_no_leader_and_a_wrong_secret_are_three_errors_of_one_screen(
    application_file: Path, command
) -> None:
    soon = ("--set", "client.timeout=500 ms")
    result = command("submit", "count.py", "--masters", f"127.0.0.1:{free_port()}", *soon)
    assert result.exit_code == 4
    assert "no master answers" in result.stderr
    with ScriptedCluster() as cluster:
        cluster.world.leader = None
        result = command("submit", "count.py", "--masters", cluster.masters, *soon)
        assert result.exit_code == 4
        assert "no master leads" in result.stderr
        assert "expected: 2 of 2 masters" in result.stderr
    with ScriptedCluster(secret="one that the client has not got") as cluster:
        result = command("submit", "count.py", "--masters", cluster.masters)
        assert result.exit_code == 2
        assert "DRIVETRAIN_SECRET" in result.stderr
        given = {"DRIVETRAIN_SECRET": "one that the client has not got"}
        result = command("submit", "count.py", "--detached", "--masters", cluster.masters, env=given)
        assert result.exit_code == 0, result.stderr
    result = command("apps", "--masters", "nonsense")
    assert result.exit_code == 2
    assert "HOST:PORT" in result.stderr
    for said in (result.stderr,):
        assert len(said.splitlines()) < 24


def runs(cluster: ScriptedCluster, *statuses: object, state: ApplicationState, last: object) -> None:
    """Once it is submitted: the application master tells these, and the registry the last."""
    app_master = cluster.app_master(statuses[0])
    views = cluster.world.applications

    def begin() -> None:
        cluster.world.change("count-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)

    def go_on() -> None:
        for status in statuses[1:]:
            app_master.tell(Status(status))
        cluster.world.end("count-1", last, state)

    cluster.later(lambda: bool(views), begin)
    followers = app_master.cell.actor.followers
    cluster.later(lambda: bool(followers), go_on)


RUNNING = world.status_of(
    "count-1",
    fragments=(FragmentView("lines", "running", 1, batch_id=0, rows_total=40, clock_ms=1_357_016_400_000),),
    fraction=0.4,
)


def test_attached_shows_how_it_goes_and_ends_with_the_result_and_what_hooks_printed(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    last = msgspec.structs.replace(
        world.finished("count-1"), counts={"lines": (0, 100, 0, 0), "out": (100, 0, 4, 2)}
    )
    runs(cluster, RUNNING, last, state=ApplicationState.SUCCEEDED, last=last)
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 0, result.stderr
    assert "accepted as count-1" in result.stderr
    assert "lines: running" in result.stderr
    assert "count-1 finished" in result.stdout
    assert "100 messages in 2.5 s" in result.stdout
    assert "bad lines: 3" in result.stdout
    assert result.stdout.endswith("done\n")


def test_attached_as_json_is_one_object_like_that_of_run(
    cluster: ScriptedCluster, application_file: Path
) -> None:
    last = msgspec.structs.replace(world.finished("count-1"), counts={"lines": (0, 100, 0, 0)})
    runs(cluster, RUNNING, last, state=ApplicationState.SUCCEEDED, last=last)
    application_file.write_text("print('printed by the application')\n" + application_file.read_text())
    ended = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", "submit", "count.py", "--json"],
        env={**os.environ, "DRIVETRAIN_CLUSTER_MASTERS": cluster.masters},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    data = json.loads(ended.stdout)
    assert data["outcome"] == "finished"
    assert data["app_id"] == "count-1"
    assert data["duration_ms"] == 2_500
    assert data["accumulators"] == {"bad lines": 3}
    assert data["printed"] == "done\n"
    assert data["processors"][0] == {
        "processor": "lines",
        "messages_in": 0,
        "messages_out": 100,
        "late": 0,
        "dead_lettered": 0,
        "is_source": True,
    }


def test_attached_failure_is_the_users_error_with_its_traceback_and_exit_code(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    error = ErrorView(
        "operator",
        "the function raised ValueError",
        where="parse (count.py:3)",
        remedy="correct the function",
        user_traceback='File "count.py", line 3, in parse\nValueError: mine',
    )
    last = world.status_of("count-1", state=JobState.FAILED, error=error, errors=(error,))
    runs(cluster, RUNNING, last, state=ApplicationState.FAILED, last=last)
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 3
    assert "the function raised ValueError" in result.stderr
    assert "ValueError: mine" in result.stderr
    assert "remedy: correct the function" in result.stderr


def test_attached_failure_as_json_has_the_code_that_run_would_have(
    cluster: ScriptedCluster, application_file: Path
) -> None:
    last = world.status_of("count-1", state=JobState.FAILED, error=ErrorView("input", "no such file"))
    runs(cluster, RUNNING, last, state=ApplicationState.FAILED, last=last)
    ended = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", "submit", "count.py", "--json"],
        env={**os.environ, "DRIVETRAIN_CLUSTER_MASTERS": cluster.masters},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    data = json.loads(ended.stdout)
    assert (data["outcome"], data["error"]["code"], data["error"]["exit_code"]) == ("failed", "input", 2)


def test_attached_to_an_application_that_is_killed_says_so(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    last = world.status_of("count-1", state=JobState.CANCELED)
    runs(cluster, RUNNING, last, state=ApplicationState.KILLED, last=last)
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 4
    assert "was killed" in result.stderr
    assert "drivetrain restart count-1" in result.stderr


def test_attached_goes_on_through_a_new_leader_and_a_new_application_master(
    cluster: ScriptedCluster, application_file: Path, command
) -> None:
    first = cluster.app_master(RUNNING)
    again = msgspec.structs.replace(RUNNING, epoch=2)
    second = cluster.app_master(again)
    last = msgspec.structs.replace(world.finished("count-1", 2), counts={"lines": (0, 100, 0, 0)})
    script = cluster.world

    def begin() -> None:
        script.change("count-1", state=ApplicationState.ACTIVE, epoch=1, app_master=first, worker="w1")

    def fail_over() -> None:
        script.lead(script.places[1])
        script.change("count-1", epoch=2, app_master=second, worker="w2")

    def end() -> None:
        second.tell(Status(last))
        script.end("count-1", last)

    cluster.later(lambda: bool(script.applications), begin)
    cluster.later(lambda: bool(first.cell.actor.followers), fail_over)
    cluster.later(lambda: bool(second.cell.actor.followers), end)
    result = command("submit", "count.py", "--masters", cluster.masters)
    assert result.exit_code == 0, result.stderr
    assert f"the master {script.places[1]} leads now" in result.stderr
    assert "application master 2 has taken over on w2" in result.stderr


def test_ctrl_c_detaches_says_how_to_come_back_and_leaves_the_application_alone(
    cluster: ScriptedCluster, application_file: Path
) -> None:
    app_master = cluster.app_master(RUNNING)
    cluster.later(
        lambda: bool(cluster.world.applications),
        lambda: cluster.world.change(
            "count-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master
        ),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "drivetrain.cli", "submit", "count.py", "--masters", cluster.masters],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        shown = ""
        while "lines: running" not in shown:
            line = process.stderr.readline()
            assert line, shown
            shown += line
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "detaching; the application keeps running" in rest
    assert "drivetrain show count-1 --watch" in rest
    assert cluster.world.applications["count-1"].state is ApplicationState.ACTIVE
