"""`drivetrain plan`, `config`, `--version` and `--help`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import drivetrain.errors
from drivetrain.config import ALL_KEYS

WINDOWED = """
from drivetrain.api import Application, sinks, sources, windows

app = Application("hourly")
path = app.setting("input", default="/data")
events = app.read(sources.csv(path, schema="at timestamp, value string", event_time="at"), name="events")
hourly = events.group_by("value").window(windows.tumbling("1 h")).count(name="by_hour")
daily = hourly.group_by(n="count").window(windows.tumbling("1 d")).count(name="by_day")
daily.sink(sinks.console(), name="out")
"""


def test_plan_shows_fragments_channels_how_operators_run_and_guarantees(
    application_file: Path, command
) -> None:
    application_file.write_text(WINDOWED)
    result = command("plan", "count.py")
    assert result.exit_code == 0
    assert "hourly: 2 fragments, 1 channel, bounded input, at least once" in result.stdout
    assert "reads the channel by_hour--by_day" in result.stdout
    assert "code-generated" in result.stdout
    assert "replayed after a crash" in result.stdout
    assert "count.py:6" in result.stdout
    assert "left out by by_hour, by_day" in " ".join(result.stdout.split())
    assert result.stdout.count("a new state has a partition for each core (spark.shuffle-partitions)") == 2
    four = command("plan", "count.py", "--set", "spark.shuffle-partitions=4")
    assert four.stdout.count("a new state has 4 partitions") == 2


def test_plan_refuses_sql_text_that_spark_cannot_read_and_marks_the_place(
    application_file: Path, command
) -> None:
    application_file.write_text(WINDOWED.replace("events.group_by", 'events.filter("n > AND m").group_by'))
    result = command("plan", "count.py")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0] == "error: count.py:7: Spark cannot read this SQL text from 'AND' on"
    assert lines[2:4] == ["  got: n > AND m", "           ^"]
    assert lines[4].startswith("  remedy: AND needs something on both sides")


def test_plan_as_json_holds_the_same_and_is_alone_on_standard_output(application_file: Path) -> None:
    application_file.write_text("print('printed by the application')\n" + WINDOWED)
    command = [
        sys.executable,
        "-m",
        "drivetrain.cli",
        "plan",
        "count.py",
        "--json",
        "--set",
        "input=/elsewhere",
        "--set",
        "spark.shuffle-partitions=3",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "printed by the application" in ended.stderr
    plan = json.loads(ended.stdout)
    assert [fragment["id"] for fragment in plan["fragments"]] == ["by_hour", "by_day"]
    assert [fragment["state_partitions"] for fragment in plan["fragments"]] == [3, 3]
    assert plan["channels"][0]["producer"] == "by_hour"
    assert "/elsewhere" in plan["operators"][0]["text"]
    assert plan["late"]["at"] == ["by_hour", "by_day"]


def test_plan_draws_its_picture(application_file: Path, command) -> None:
    result = command("plan", "count.py", "--picture", "plan.svg")
    assert result.exit_code == 0
    assert "picture: plan.svg" in result.stdout
    assert Path("plan.svg").read_text().startswith("<svg ")


def test_picture_that_cannot_be_written_is_an_error(application_file: Path, command) -> None:
    result = command("plan", "count.py", "--picture", "missing/plan.svg")
    assert result.exit_code == 2
    assert "the picture cannot be written" in result.stderr


def test_plan_of_a_file_that_raises_shows_the_users_traceback(application_file: Path, command) -> None:
    application_file.write_text("def load():\n    raise ValueError('mine')\nload()\n")
    result = command("plan", "count.py")
    assert result.exit_code == 2
    assert "ValueError: mine" in result.stderr
    assert "in load" in result.stderr
    assert "site-packages" not in result.stderr


def test_config_lists_every_key_with_its_value_and_where_it_came_from(
    application_file: Path, command
) -> None:
    Path("drivetrain.toml").write_text("[run]\nmax-batch-rows = 7\n")
    result = command(
        "config", "--set", "state.dir=/x", env={"DRIVETRAIN_ACTOR_ASK_TIMEOUT": "5 s", "COLUMNS": "250"}
    )
    assert result.exit_code == 0
    for name in ALL_KEYS:
        assert name in result.stdout
    assert "drivetrain.toml:2" in result.stdout
    assert "environment variable DRIVETRAIN_ACTOR_ASK_TIMEOUT" in result.stdout
    assert "--set state.dir" in result.stdout


def test_config_as_json_can_be_read_back(application_file: Path, command) -> None:
    listed = json.loads(command("config", "--json", "--set", "run.max-batch-bytes=1 MiB").stdout)
    by_key = {entry["key"]: entry for entry in listed}
    assert set(by_key) == set(ALL_KEYS)
    assert by_key["run.max-batch-bytes"]["value"] == "1 MiB"
    assert by_key["run.max-batch-bytes"]["default"] == "512 MiB"
    assert by_key["spark.master"]["environment"] == "DRIVETRAIN_SPARK_MASTER"


def test_config_refuses_an_unknown_key(application_file: Path, command) -> None:
    result = command("config", "--set", "spark.mastr=x")
    assert result.exit_code == 2
    assert 'did you mean "spark.master"?' in result.stderr


def test_configuration_file_that_may_not_be_read_is_an_error(application_file: Path, command) -> None:
    Path("drivetrain.toml").mkdir()
    result = command("config")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_version_is_the_package_version(command) -> None:
    assert command("--version").stdout.strip() == f"drivetrain {drivetrain.__version__}"


def test_help_lists_the_commands_and_the_exit_codes(command) -> None:
    told = command("--help").stdout
    for expected in ("run", "plan", "doctor", "config", "Exit codes", "130"):
        assert expected in told


def test_guide_lists_every_exit_code_of_the_errors_and_signals() -> None:
    guide = (Path(__file__).parents[3] / "docs/guide/commands.md").read_text()
    documented = {
        int(code)
        for row in guide.splitlines()
        for code in re.findall(r"^\| ([\d, ]+) \|", row)
        for code in code.split(",")
    }
    errors = {error.exit_code for error in vars(drivetrain.errors).values() if hasattr(error, "exit_code")}
    assert documented == errors | {0, 128 + signal.SIGINT, 128 + signal.SIGTERM}
