"""`drivetrain run`, with an engine that only tells events: output, JSON, errors, exit codes, signals."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import RESULT, FakeEngine

from drivetrain.config.catalog import run, spark
from drivetrain.core.job.run_progress import RunListener, RunOutcome, RunResult
from drivetrain.errors import DiskFullError, InputError, InternalError, OperatorError
from drivetrain.runtime.graph_versions import KeptVersion


def test_finished_run_shows_progress_on_stderr_and_the_summary_on_stdout(
    engine: FakeEngine, application_file: Path, command
) -> None:
    result = command("run", str(application_file))
    assert result.exit_code == 0
    assert "[00:00] count: 1 fragment" in result.stderr
    assert "counts: running" in result.stderr
    assert "half of it" in result.stderr
    assert "count finished" in result.stdout
    assert "1,000 messages in 2.5 s (400/s), 3 batches, clock 2013-01-01 05:00:00" in result.stdout
    assert "parquet out/" in result.stdout
    assert "2 messages are in the dead letters" in result.stdout


def test_settings_reach_the_engine(engine: FakeEngine, application_file: Path, command) -> None:
    Path("drivetrain.toml").write_text("[run]\nmax-batch-rows = 7\n")
    command(
        "run",
        "count.py",
        "--set",
        "input=/data",
        "--set",
        "spark.master=local[1]",
        "--state-dir",
        "s",
        "--fresh",
    )
    application, config, fresh = engine.calls[0]
    assert application.settings["input"].value == "/data"
    assert config[spark.MASTER] == "local[1]"
    assert config[run.STATE_DIR] == "s"
    assert config[run.MAX_BATCH_ROWS] == 7
    assert fresh is True


def test_a_replay_is_handed_on_in_milliseconds_and_told_at_the_end(
    engine: FakeEngine, application_file: Path, command
) -> None:
    engine.result = replace(RESULT, life=2, replay_from_ms=1_362_096_000_000, skipped=1_234)
    result = command("run", "count.py", "--replay-from", "2013-03-01T00:00")
    assert engine.replays == [1_362_096_000_000]
    assert "life 2, replayed from 2013-03-01 00:00:00: 1,234 older messages skipped" in result.stdout

    engine.result = replace(engine.result, outcome=RunOutcome.STOPPED)
    assert "without --replay-from" in command("run", "count.py").stdout.replace("\n", " ")
    assert engine.replays[1:] == [None]


def test_messages_that_were_gone_before_they_were_read_are_told(
    engine: FakeEngine, application_file: Path, command
) -> None:
    engine.result = replace(RESULT, lost=12)
    assert "12 messages gone before the sources read them" in command("run", "count.py").stdout


def test_a_replay_from_no_moment_is_refused(engine: FakeEngine, application_file: Path, command) -> None:
    result = command("run", "count.py", "--replay-from", "yesterday")
    assert result.exit_code == 2
    assert "ISO 8601" in result.stderr
    assert engine.replays == []


@pytest.mark.parametrize(("given", "number"), [("3", 3), ("in-force", "in-force")])
def test_a_version_is_handed_on(
    engine: FakeEngine, application_file: Path, command, given: str, number: KeptVersion
) -> None:
    command("run", "count.py", "--version", given)
    assert engine.versions == [number]


@pytest.mark.parametrize("given", ["newest", "0", "-1", "1.5"])
def test_what_is_no_version_is_refused(
    engine: FakeEngine, application_file: Path, command, given: str
) -> None:
    result = command("run", "count.py", f"--version={given}")
    assert result.exit_code == 2
    assert "in-force" in result.stderr
    assert engine.versions == []


def test_a_savepoint_is_handed_on(engine: FakeEngine, application_file: Path, command) -> None:
    command("run", "count.py", "--from", "/backup/saved")
    assert engine.savepoints == ["/backup/saved"]


def test_a_savepoint_of_what_never_ran_says_what_is_known(application_file: Path, command) -> None:
    result = command("savepoint", "count", "--state-dir", "state", "--to", "saved")
    assert result.exit_code == 2
    assert "no application 'count' has state here" in result.stderr
    assert not Path("saved").exists()


def test_configuration_file_is_the_one_named(engine: FakeEngine, application_file: Path, command) -> None:
    Path("drivetrain.toml").write_text("run.max-batch-rows = 1\n")
    Path("other.toml").write_text("run.max-batch-rows = 2\n")
    command("run", "count.py", env={"DRIVETRAIN_CONFIG": "other.toml"})
    command("run", "count.py", "--config", "drivetrain.toml", env={"DRIVETRAIN_CONFIG": "other.toml"})
    assert [config[run.MAX_BATCH_ROWS] for _, config, _ in engine.calls] == [2, 1]


def test_run_that_had_finished_says_so(engine: FakeEngine, application_file: Path, command) -> None:
    engine.result = RunResult("count", RunOutcome.ALREADY_FINISHED, 10, (), ())
    result = command("run", "count.py")
    assert result.exit_code == 0
    assert "nothing to do" in result.stdout
    assert "--fresh" in result.stdout


@pytest.mark.parametrize(
    ("error", "exit_code", "says"),
    [
        (InputError("no such directory", where="lines", remedy="make it"), 2, "lines: no such directory"),
        (
            OperatorError(
                "ValueError: bad", operator="words (a.py:3)", message="{'a': 1}", user_traceback="File a.py"
            ),
            3,
            "words (a.py:3): ValueError: bad",
        ),
        (DiskFullError("no space left", remedy="make room"), 4, "no space left"),
        (InternalError("broken", history=["one", "two"]), 70, "before: two"),
    ],
)
def test_error_is_one_screen_on_stderr_with_its_exit_code(
    engine: FakeEngine, application_file: Path, command, error: Exception, exit_code: int, says: str
) -> None:
    def fail(listener: RunListener) -> None:
        raise error

    engine.during = fail
    result = command("run", "count.py")
    assert result.exit_code == exit_code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    if isinstance(error, OperatorError):
        assert "message: {'a': 1}" in result.stderr
        assert "File a.py" in result.stderr


def test_error_nobody_raised_on_purpose_is_shown_whole_as_a_bug(
    engine: FakeEngine, application_file: Path, command
) -> None:
    def fail(listener: RunListener) -> None:
        raise KeyError("lost")

    engine.during = fail
    result = command("run", "count.py")
    assert result.exit_code == 70
    assert "Traceback" in result.stderr
    assert "please report it" in result.stderr


def test_misspelt_setting_is_an_error_before_anything_runs(
    engine: FakeEngine, application_file: Path, command
) -> None:
    result = command("run", "count.py", "--set", "inptu=x")
    assert result.exit_code == 2
    assert 'did you mean "input"?' in result.stderr
    assert engine.calls == []


@pytest.mark.parametrize("written", ["novalue", "=x"])
def test_set_without_name_or_value_is_an_error(
    engine: FakeEngine, application_file: Path, command, written
) -> None:
    result = command("run", "count.py", "--set", written)
    assert result.exit_code == 2
    assert "--set NAME=VALUE" in result.stderr


def test_unknown_option_is_a_usage_error(command) -> None:
    result = command("run", "count.py", "--sett", "a=b")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


# From here on a real process, because descriptors and signals belong to one.

_PROGRAM = """
import os, sys, time
sys.path.insert(0, {tests!r})
from fake_engine import RESULT, FakeEngine
from dataclasses import replace
from drivetrain.cli.running import run
from drivetrain.cli.main import main
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import InputError

def noisy(listener):
    print("printed by the application")
    os.system("echo printed by a child process")

def fails(listener):
    noisy(listener)
    raise InputError("no such directory", where="lines", remedy="make it")

def until_stopped(listener):
    print("waiting", file=sys.stderr, flush=True)
    while not listener.stop_requested():
        time.sleep(0.01)
    engine.result = replace(RESULT, outcome=RunOutcome.STOPPED)

def for_ever(listener):
    print("waiting", file=sys.stderr, flush=True)
    while True:
        time.sleep(0.01)

engine = FakeEngine(during={during})
run.spark_engine = lambda _: engine
main()
"""


@pytest.fixture
def start(application_file: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(during: str, *arguments: str) -> subprocess.Popen[str]:
        program = _PROGRAM.format(tests=str(Path(__file__).parent), during=during)
        command = [sys.executable, "-c", program, "run", "count.py", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for_line(process: subprocess.Popen[str], wanted: str, timeout_s: float = 30.0) -> None:
    """Read the process's standard error up to the line that contains `wanted`."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    selector = selectors.DefaultSelector()
    selector.register(process.stderr, selectors.EVENT_READ)
    seen, deadline = "", time.monotonic() + timeout_s
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if selector.select(timeout=1.0):
            seen += os.read(process.stderr.fileno(), 4096).decode()
        assert process.poll() is None or wanted in seen, seen
    os.set_blocking(process.stderr.fileno(), True)


def test_json_is_all_that_reaches_standard_output(start) -> None:
    stdout, stderr = start("noisy", "--json").communicate(timeout=60)
    told = json.loads(stdout)
    assert told["outcome"] == "finished"
    assert told["late"] == 4
    assert told["dead_lettered"] == 2
    assert told["processors"][1] == {
        "processor": "counts",
        "messages_in": 1000,
        "messages_out": 37,
        "late": 4,
        "dead_lettered": 2,
        "is_source": False,
    }
    assert told["outputs"][0]["guarantee"] == "exactly once"
    assert "printed by the application" in stderr
    assert "printed by a child process" in stderr


def test_json_of_a_failure_carries_the_error(start) -> None:
    process = start("fails", "--json")
    stdout, stderr = process.communicate(timeout=60)
    told = json.loads(stdout)
    assert told["outcome"] == "failed"
    assert told["error"]["code"] == "input"
    assert told["error"]["remedy"] == "make it"
    assert process.returncode == 2
    assert "no such directory" in stderr


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_first_signal_drains_and_shows_the_summary(start, number: int, exit_code: int) -> None:
    process = start("until_stopped")
    wait_for_line(process, "waiting")
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert "stopping after the batches in progress" in stderr
    assert "count stopped; the same command resumes it" in stdout


def test_second_signal_ends_the_process_at_once(start) -> None:
    process = start("for_ever")
    wait_for_line(process, "waiting")
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "Ctrl-C again stops at once")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resumes from the last committed batch" in stderr


def test_signal_that_comes_when_the_run_is_over_does_not_change_its_outcome(
    engine: FakeEngine, application_file: Path, command
) -> None:
    before = signal.getsignal(signal.SIGINT)
    engine.during = lambda listener: signal.raise_signal(signal.SIGINT)
    engine.result = replace(RESULT, outcome=RunOutcome.FINISHED)
    result = command("run", "count.py")
    assert result.exit_code == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_watched_is_given_the_words_of_the_command(
    application_file: Path, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def watching(*words: object) -> int:
        given.extend(words)
        return 130

    monkeypatch.setattr("drivetrain.cli.running.run.watch_application", watching)
    result = command("run", "count.py", "--watch", "--fresh", "--set", "input=/there", "--state-dir", "kept")
    assert result.exit_code == 130
    file, _, plan, first = given
    assert file == "count.py"
    assert "input=/there" in plan
    assert "kept" in plan
    assert first == ["--fresh"]
    refused = command("run", "count.py", "--watch", "--json")
    assert refused.exit_code == 2
    assert "--watch and --json" in refused.stderr
