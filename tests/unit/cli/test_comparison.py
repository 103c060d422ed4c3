"""`drivetrain plan --against` and `drivetrain versions`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import Result

from drivetrain.code.application_file import load_application
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.planned_version import planned_version
from drivetrain.runtime.run_directory import RunDirectory

SHOP = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("shop")
orders = app.read(
    sources.json("in", schema="at timestamp, item string, n bigint", event_time="at"), name="orders"
)
hourly = orders.group_by("item").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.sum("n"))
orders.filter("n > 5", name="large").sink(sinks.json("large"), name="large_out")
hourly.sink(sinks.json("hourly"), name="hourly_out")
"""

BIG = SHOP.replace("n > 5", "n > 6").replace(
    'sinks.json("large"), name="large', 'sinks.json("big"), name="big'
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an application, in an otherwise empty current directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    return file


def begin(shop: Path, state: str = ".drivetrain", **settings: str) -> RunDirectory:
    """What a run does before its first batch."""
    application = load_application(str(shop), settings)
    rundir = RunDirectory(state, application.name, application.naming_settings)
    rundir.acquire()
    rundir.begin(plan(application.graph()))
    rundir.release()
    return rundir


def test_what_changes_is_shown_processor_by_processor_against_a_file(
    shop: Path, command: Callable[..., Result]
) -> None:
    shop.with_name("new.py").write_text(BIG)
    result = command("plan", "new.py", "--against", "shop.py")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "large swapped its arguments have changed filter n > 5 filter n > 6" in text
    assert "big_out started" in text
    assert "large_out stopped" in text
    assert "kept: orders, hourly, hourly_out" in text
    assert "The application can continue with its state" in text


def test_it_is_compared_with_what_ran_last_under_the_name_and_says_when_that_was(
    shop: Path, command: Callable[..., Result]
) -> None:
    begin(shop)
    assert "nothing changes" in command("plan", "shop.py", "--against", "shop").stdout
    shop.write_text(SHOP.replace("1 h", "2 h"))
    result = command("plan", "shop.py", "--against", "shop")
    assert result.exit_code == 2
    text = " ".join(result.stdout.split())
    assert "shop against version 1 of shop-" in text
    assert "hourly refused the state of" in text
    assert "The application cannot continue with its state: 1 processor refused" in text


def test_json_has_the_plan_and_the_comparison(shop: Path) -> None:
    begin(shop, "elsewhere")
    shop.write_text(SHOP.replace("n > 5", "n > 6"))
    arguments = ["plan", "shop.py", "--against", "shop", "--json", "--state-dir", "elsewhere"]
    line = [sys.executable, "-m", "drivetrain.cli", *arguments]
    told = json.loads(subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert told["application"] == "shop"
    assert told["against"]["version"] == 1
    assert told["against"]["continues"] is True
    changes = {change["id"]: change["fate"] for change in told["against"]["changes"]}
    assert {id for id, fate in changes.items() if fate != "kept"} == {"large"}
    assert changes["large"] == "swapped"


def test_an_application_that_has_not_run_is_a_clear_error(shop: Path, command: Callable[..., Result]) -> None:
    result = command("plan", "shop.py", "--against", "shop")
    assert result.exit_code != 0
    assert "no application 'shop' has state here" in result.stderr


def test_versions_lists_what_changed_each_time(shop: Path, command: Callable[..., Result]) -> None:
    begin(shop)
    begin(shop)  # the same graph is the same version
    shop.write_text(SHOP + '\nhourly.sink(sinks.none(), name="nowhere")\n')
    begin(shop)
    shop.write_text(SHOP.replace("n > 5", "n > 6"))
    begin(shop)
    result = command("versions", "shop")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert next(line for line in lines if line.startswith("2")).endswith("6 1 started replaced")
    assert next(line for line in lines if line.startswith("3")).endswith("5 1 swapped, 1 stopped in force")
    told = json.loads(command("versions", "shop", "--json").stdout)["versions"]
    assert [version["changes"] for version in told] == [
        {},
        {"nowhere": "started"},
        {"large": "swapped", "nowhere": "stopped"},
    ]


def test_versions_says_when_the_run_has_ended_during_a_trial(
    shop: Path, command: Callable[..., Result]
) -> None:
    def outcomes() -> tuple[str, list[object]]:
        told = json.loads(command("versions", "shop", "--json").stdout)["versions"]
        text = " ".join(command("versions", "shop").stdout.split())
        return text, [version["trial"] for version in told]

    rundir = begin(shop)
    shop.write_text(SHOP.replace("n > 5", "n > 6"))
    graph = load_application(str(shop), {}).graph()
    rundir.acquire()
    rundir.versions.note(planned_version(plan(graph)), "update")
    text, trials = outcomes()
    assert "in force, on trial" in text
    assert trials == [None, "under way"]

    rundir.release()
    text, trials = outcomes()
    assert "in force, its trial was interrupted" in text
    assert "the run ended during the trial of version 2, which is in force" in text
    assert trials == [None, "interrupted"]
    assert rundir.is_free(), "the command holds no lock"
    rundir.release()

    shop.write_text(SHOP)
    begin(shop)
    text, trials = outcomes()
    assert "replaced, its trial was interrupted" in text
    assert "on trial" not in text
    assert trials == [None, "interrupted", None]


def test_a_version_that_is_damaged_keeps_no_run_from_starting(
    shop: Path, command: Callable[..., Result]
) -> None:
    rundir = begin(shop)
    (rundir.path / "versions" / "1").write_text("torn")
    begin(shop)
    assert rundir.versions.numbers() == [1, 2]
    assert rundir.versions.in_force() is not None
    result = command("versions", "shop")
    assert "version 1 of an application's graph cannot be read" in result.stderr


def test_only_the_newest_hundred_are_kept(shop: Path) -> None:
    for threshold in range(104):
        shop.write_text(SHOP.replace("n > 5", f"n > {threshold}"))
        rundir = begin(shop)
    assert rundir.versions.numbers() == list(range(5, 105))


def test_two_versions_that_were_recorded_are_compared_as_table_data_and_picture(
    shop: Path, command: Callable[..., Result]
) -> None:
    begin(shop)
    shop.write_text(SHOP.replace("n > 5", "n > 6"))
    begin(shop)
    shop.write_text(SHOP.replace("n > 5", "n > 6") + '\nhourly.sink(sinks.none(), name="nowhere")\n')
    begin(shop)
    result = command("versions", "shop", "--between", "1", "3", "--picture", "between.svg")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "large ~ changed its arguments have changed filter n > 5 filter n > 6" in text
    assert "nowhere + new" in text
    assert "kept: orders, hourly, large_out, hourly_out" in text
    assert "picture: between.svg" in text
    root = ElementTree.fromstring(shop.with_name("between.svg").read_text())
    marks = {group.get("data-id"): group.get("data-mark") for group in root.iter() if group.get("data-mark")}
    assert (marks["large"], marks["nowhere"], marks["orders"]) == ("changed", "new", "kept")
    back = json.loads(command("versions", "shop", "--between", "3", "2", "--json").stdout)
    assert {each["id"]: each["mark"] for each in back["processors"]}["nowhere"] == "gone"
    wrong = command("versions", "shop", "--between", "1", "4")
    assert wrong.exit_code != 0
    assert "there is no version 4" in wrong.stderr
    assert "one of 1, 2, 3" in wrong.stderr
    assert "add --between" in command("versions", "shop", "--picture", "x.svg").stderr


def test_the_picture_of_a_comparison_shows_what_is_gone_too(
    shop: Path, command: Callable[..., Result]
) -> None:
    shop.with_name("new.py").write_text(BIG)
    result = command("plan", "new.py", "--against", "shop.py", "--picture", "change.svg")
    assert result.exit_code == 0, result.output
    root = ElementTree.fromstring(shop.with_name("change.svg").read_text())
    marks = {group.get("data-id"): group.get("data-mark") for group in root.iter() if group.get("data-mark")}
    assert marks["large_out"] == "gone"
    assert (marks["large"], marks["big_out"], marks["hourly"]) == ("changed", "new", "kept")
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"swapped", "started", "stopped", "~ large", "+ big_out", "− large_out"} <= set(texts)


def test_plan_and_its_comparison_refuse_two_sinks_with_one_directory(
    shop: Path, command: Callable[..., Result]
) -> None:
    begin(shop)
    shop.write_text(SHOP.replace('sinks.json("hourly")', 'sinks.json("./x/../large")'))
    for options in ((), ("--against", "shop")):
        result = command("plan", "shop.py", *options)
        assert result.exit_code == 2
        assert f"two sinks write to {shop.parent}/large" in result.stderr
        assert "large_out" in result.stderr


SETTING = 'app = Application("shop")\nleast = app.setting("least", 5)\n'


def test_the_next_version_has_the_settings_of_the_application_that_has_run(
    shop: Path, command: Callable[..., Result]
) -> None:
    with_setting = SHOP.replace('app = Application("shop")\n', SETTING).replace('"n > 5"', 'f"n > {least}"')
    shop.write_text(with_setting)
    begin(shop, least="7")
    result = command("plan", "shop.py", "--against", "shop")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "nothing changes"), result.output
    changed = command("plan", "shop.py", "--against", "shop", "--set", "least=8")
    assert changed.exit_code == 2
    assert "the file holds another application" in changed.output
    assert "expected: shop with least=7" in changed.output


def test_a_file_of_another_application_is_refused(shop: Path, command: Callable[..., Result]) -> None:
    shop.write_text(SHOP.replace('app = Application("shop")\n', SETTING))
    begin(shop)
    shop.with_name("other.py").write_text(SHOP.replace('"shop"', '"other"'))
    for asked in (("plan", "other.py", "--against", "shop"), ("update", "shop", "other.py", "--dry-run")):
        result = command(*asked)
        assert result.exit_code == 2
        assert "other.py: the file holds another application" in result.output
        assert "got: other with no settings" in result.output


def test_a_sink_with_another_name_at_a_taken_place_is_refused(
    shop: Path, command: Callable[..., Result]
) -> None:
    begin(shop)
    shop.write_text(SHOP.replace('sinks.json("large"), name="large_out"', 'sinks.csv("large"), name="csv"'))
    result = command("plan", "shop.py", "--against", "shop")
    assert result.exit_code == 2, result.output
    text = "".join(result.stdout.split())
    assert "csvrefusedlarge_out" in text
    assert "leavethesink" in text
    shop.write_text(SHOP.replace('sinks.json("large")', 'sinks.csv("large")'))
    assert command("plan", "shop.py", "--against", "shop").exit_code == 0, "it has its name"
