"""`drivetrain update` and `drivetrain rollback`, as far as they go without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import Result

from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.live_change import Stage
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.control_requests import asked_state
from drivetrain.runtime.control_socket import ControlSocket
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code

SHOP = """
from drivetrain import Application, agg, sinks, sources

app = Application("shop")
least = app.setting("least", 5)
orders = app.read(sources.json("in", schema="item string, n bigint"), name="orders")
orders.filter(f"n > {least}", name="large").sink(sinks.json("large"), name="large_out")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """The state of an application that has begun, with one version; its file is `shop.py`."""
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(SHOP)
    application = load_application("shop.py", {"least": "7"})
    rundir = RunDirectory(".drivetrain", application.name, application.naming_settings)
    rundir.acquire()
    rundir.begin(plan(application.graph()), code=graph_as_code(application.graph()))
    rundir.release()
    Path("new.py").write_text(SHOP.replace("n > {", "n >= {"))
    return rundir


@contextmanager
def running(rundir: RunDirectory, *states: ChangeState) -> Iterator[list[dict[str, object]]]:
    """Somebody answers in place of the application, with one state after the other; what was asked."""
    asked: list[dict[str, object]] = []
    left = [ChangeState(1), *states]

    def answer(line: bytes) -> bytes:
        request = msgspec.json.decode(line)
        asked.append(request)
        if request["ask"] == "change":
            return msgspec.json.encode({"number": 2})
        state = left.pop(0) if len(left) > 1 else left[0]
        return msgspec.json.encode({"state": state})

    rundir.acquire()
    control = ControlSocket(rundir.path, answer)
    try:
        yield asked
    finally:
        control.close()
        rundir.release()


def test_a_dry_run_shows_what_would_change_with_the_settings_that_run(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    result = command("update", "shop", "new.py", "--dry-run")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "large swapped its arguments have changed filter n > 7 filter n >= 7" in text
    compared = command("plan", "new.py", "--against", "shop", "--set", "least=7")
    assert result.stdout == compared.stdout, "what plan says is what update does"


def test_an_application_that_does_not_run_is_a_clear_error(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    result = command("update", "shop", "new.py", "--yes")
    assert result.exit_code == 4
    assert "does not run embedded here" in result.stderr
    assert shop.versions.numbers() == [1]


def test_what_a_running_application_cannot_take_ends_with_code_2(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    Path("new.py").write_text(SHOP.replace("orders.filter", "orders.cut().filter"))
    result = command("update", "shop", "new.py", "--yes")
    assert result.exit_code == 2
    assert "cannot continue with its state" in " ".join(result.stdout.split())


def test_another_application_is_refused(shop: RunDirectory, command: Callable[..., Result]) -> None:
    Path("new.py").write_text(SHOP.replace('"shop"', '"shops"'))
    result = command("update", "shop", "new.py", "--yes")
    assert result.exit_code == 2
    assert "another application" in result.stderr
    result = command("update", "shop", "shop.py", "--set", "least=8", "--yes")
    assert result.exit_code == 2
    assert "another application" in result.stderr


def test_nobody_is_asked_where_there_is_no_terminal(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    result = command("update", "shop", "new.py")
    assert result.exit_code == 2
    assert "pass --yes" in result.stderr


def test_the_end_of_the_change_is_told_and_is_the_exit_code(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    trial = ChangeState(2, Stage.ON_TRIAL, 2, 1, ("orders",))
    done = ChangeState(2, Stage.IDLE, 2, 1, (), Outcome.DONE)
    failed = ChangeState(1, Stage.IDLE, 2, 1, (), Outcome.ROLLED_BACK, "orders", "ZeroDivisionError: n")
    with running(shop, trial, done) as asked:
        result = command("update", "shop", "new.py", "--yes")
    assert result.exit_code == 0, result.output
    assert "version 2 is in force" in result.stdout
    assert [request["ask"] for request in asked] == ["state", "change", "state", "state"]
    assert asked[1]["against"] == 1
    assert not list((shop.path / "versions").glob("proposed-*"))
    with running(shop, trial, failed):
        result = command("update", "shop", "new.py", "--json")
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert told["change"] == {
        "version": 2,
        "outcome": "rolled back",
        "stage": "idle",
        "awaited": [],
        "unproven": [],
        "fragment": "orders",
        "why": "ZeroDivisionError: n",
        "at_ms": None,
        "both": [],
        "clock_ms": None,
        "history": None,
        "stages": [],
    }
    with running(shop, trial):
        result = command("update", "shop", "new.py", "--yes", "--timeout", "0 s")
    assert result.exit_code == 0, result.output
    assert "on trial: no message has passed orders yet" in " ".join(result.stdout.split())


AT = ChangeState(2, Stage.ON_TRIAL, 2, 1, ("orders",), at_ms=60_000, both=("orders",), clock_ms=59_000)
TAKES_EFFECT = "it takes effect at 1970-01-01T00:01:00+00:00; the clock is at 1970-01-01T00:00:59+00:00"


def test_a_change_at_a_time_of_the_messages_says_how_far_the_clock_is(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    with running(shop, AT) as asked:
        line = ("update", "shop", "new.py", "--yes", "--timeout", "0 s", "--at")
        result = command(*line, "1970-01-01T00:01")
        assert result.exit_code == 0, result.output
        text = " ".join(result.stdout.split())
        assert f"version 2 is compiled; {TAKES_EFFECT}" in text
        assert f"version 2 is in force and on trial; {TAKES_EFFECT}" in text
        assert command(*line, "next-window").exit_code == 0
        assert command(*line, "now").exit_code == 0
    assert [request["options"]["at"] for request in asked if request["ask"] == "change"] == [
        60_000,
        "next-window",
        None,
    ]
    result = command("update", "shop", "new.py", "--at", "soon")
    assert result.exit_code == 2
    assert "not a time" in result.stderr


def test_a_part_changes_at_a_time_of_the_messages(shop: RunDirectory, command: Callable[..., Result]) -> None:
    Path("part.py").write_text(
        "from drivetrain import sinks\n"
        "def attach(orders):\n    orders.sink(sinks.none(), name='more_out')\n"
        "def replace(orders):\n    return orders.filter('n > 50')\n"
    )
    Path("two.py").write_text(SHOP + 'orders.sink(sinks.none(), name="all_out")\n')
    graph = load_application("two.py", {"least": "7"}).graph()
    shop.versions.note(version_of(plan(graph), fingerprint), "update", graph_as_code(graph))
    ends = ("--yes", "--timeout", "0 s", "--at")
    with running(shop, AT) as asked:
        for line in (
            ("attach", "shop", "part.py", "--to", "orders"),
            ("replace", "shop", "large", "part.py"),
            ("remove", "shop", "large"),
        ):
            result = command(*line, *ends, "1970-01-01T00:01")
            assert result.exit_code == 0, result.output
            assert TAKES_EFFECT in " ".join(result.stdout.split())
            assert command(*line, *ends, "soon").exit_code == 2
    times = [request["options"]["at"] for request in asked if request["ask"] == "change"]
    assert times == [60_000] * 3


def test_versions_shows_a_handover_and_the_history(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    application = load_application("new.py", {"least": "7"})
    record = msgspec.structs.replace(version_of(plan(application.graph()), fingerprint), at_ms=60_000)
    shop.versions.note(record, "update", graph_as_code(application.graph()))
    shop.versions.note_stages(2, (ChangeStage("proposed", 1_000), ChangeStage("in force", 3_500)))
    with running(shop, AT):
        asked_state(shop)  # the first state is that of version 1
        text = " ".join(command("versions", "shop").stdout.split())
        told = json.loads(command("versions", "shop", "--json").stdout)["versions"][1]
    assert f"version 2 {TAKES_EFFECT.removeprefix('it ')}" in text
    assert "version 2: proposed, in force after 2.5 s" in text
    assert told["at_ms"] == 60_000
    assert told["handing_over"] == TAKES_EFFECT.removeprefix("it ")
    assert told["stages"][1]["took_ms"] == 2_500
    text = " ".join(command("versions", "shop").stdout.split())
    assert "version 2 took the messages from 1970-01-01T00:01:00+00:00 on" in text, "it does not run"


def test_a_rollback_gives_up_a_version_on_trial(shop: RunDirectory, command: Callable[..., Result]) -> None:
    application = load_application("new.py", {"least": "7"})
    shop.acquire()
    shop.begin(plan(application.graph()))
    shop.release()
    trial = ChangeState(2, Stage.ON_TRIAL, 2, 1, ("orders",))
    given_up = ChangeState(1, Stage.IDLE, 2, 1, (), Outcome.ROLLED_BACK, None, "given up")
    with running(shop, trial, trial, given_up) as asked:
        asked_state(shop)  # the first state is that of version 1
        result = command("rollback", "shop", "--yes")
    assert result.exit_code == 0, result.output
    assert "version 2 was cancelled, version 1 continues" in result.stdout
    # Whether a history is being read that can be cancelled is asked first.
    assert [request["ask"] for request in asked] == ["state", "state", "state", "give-up", "state"]
    assert asked[3]["number"] == 2


def test_a_trial_that_ends_before_it_is_given_up_is_an_error(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    application = load_application("new.py", {"least": "7"})
    shop.acquire()
    shop.begin(plan(application.graph()))
    shop.release()
    trial = ChangeState(2, Stage.ON_TRIAL, 2, 1, ("orders",))
    with running(shop, trial, trial, ChangeState(2, Stage.IDLE, 2, 1, (), Outcome.DONE)):
        asked_state(shop)  # the first state is that of version 1
        result = command("rollback", "shop", "--yes")
    assert result.exit_code == 2, result.output
    assert "was not cancelled" in result.stderr
    with running(shop, trial):
        asked_state(shop)
        result = command("rollback", "shop", "--yes", "--timeout", "0 s")
    assert result.exit_code == 4, result.output
    assert "is not cancelled yet" in result.stderr


def test_a_rollback_takes_the_code_that_was_kept(shop: RunDirectory, command: Callable[..., Result]) -> None:
    result = command("rollback", "shop", "--yes")
    assert result.exit_code == 2
    assert "there is no earlier version" in result.stderr
    application = load_application("new.py", {"least": "7"})
    shop.acquire()
    shop.begin(plan(application.graph()))
    shop.release()
    Path("shop.py").unlink()
    with running(shop, ChangeState(3, Stage.IDLE, 3, 2, (), Outcome.DONE)) as asked:
        result = command("rollback", "shop", "--dry-run")
        assert "filter n >= 7 filter n > 7" in " ".join(result.stdout.split())
        assert all(request["ask"] == "state" for request in asked)
    result = command("rollback", "shop", "9", "--yes")
    assert "there is no version 9 to go back to" in result.stderr
    assert "1, 2" in result.stderr
    result = command("rollback", "shop", "2", "--dry-run")
    assert "nothing changes" in result.stdout


def test_a_part_is_attached_by_a_function_in_a_file(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    Path("more.py").write_text(
        "from drivetrain import agg, sinks\n"
        "def attach(orders):\n"
        "    totals = orders.group_by('item').aggregate(n=agg.sum('n'), step='totals')\n"
        "    totals.sink(sinks.json('totals'), name='totals_out')\n"
    )
    shown = command("attach", "shop", "more.py", "--to", "orders", "--dry-run")
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "totals started it starts in a fragment of its own (totals)" in text
    assert "kept: orders, large, large_out" in text
    done = ChangeState(2, Stage.IDLE, 2, 1, (), Outcome.DONE)
    with running(shop, done) as asked:
        made = command("attach", "shop", "more.py", "--to", "orders", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["change"]["outcome"] == "done"
    assert [request["ask"] for request in asked][:2] == ["state", "change"]


def test_a_processor_is_removed_or_replaced_by_its_name(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    refused = command("remove", "shop", "large", "--dry-run")
    assert refused.exit_code == 2, "it is all that the application does"
    assert "nothing would be left" in refused.stderr
    Path("other.py").write_text("def replace(orders):\n    return orders.filter('n > 70')\n")
    shown = command("replace", "shop", "large", "other.py", "--dry-run")
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "large swapped its arguments have changed filter n > 7 filter n > 70" in text
    unknown = command("replace", "shop", "larg", "other.py", "--dry-run")
    assert unknown.exit_code == 2
    assert "perhaps large" in " ".join(unknown.stderr.split())
    missing = command("attach", "shop", "other.py", "--to", "large", "--dry-run")
    assert "no function attach" in " ".join(missing.stderr.split())


def test_whether_fragments_that_go_are_discarded_is_asked_for(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    with running(shop, ChangeState(2, Stage.IDLE, 2, 1, (), Outcome.DONE)) as asked:
        result = command("update", "shop", "new.py", "--discard", "--json")
    assert result.exit_code == 0, result.output
    assert next(request["options"]["discards"] for request in asked if request["ask"] == "change") is True


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "there is nothing to change"),
        (("--set", "run.delivery=at most once"), "cannot change while the application runs"),
        (("--set", "run.batch-targets=1 s"), 'did you mean "run.batch-target"'),
        (("--unset", "least"), "cannot change while the application runs"),
        (("new.py", "--unset", "run.batch-target"), "one after the other"),
        (("--set", "run.batch-target=1 s"), "does not run embedded here"),
    ],
)
def test_a_configuration_that_cannot_change_is_refused_before_anything_is_asked(
    shop: RunDirectory, command: Callable[..., Result], words: tuple[str, ...], why: str
) -> None:
    result = command("update", "shop", *words)
    assert result.exit_code in (2, 4)
    assert why in " ".join(result.stderr.split())


def test_values_of_the_configuration_are_asked_for_and_shown(
    shop: RunDirectory, command: Callable[..., Result]
) -> None:
    changed = [{"name": "run.batch-target", "before": "10 s", "after": "2 s"}]
    asked: list[dict[str, object]] = []

    def answer(line: bytes) -> bytes:
        asked.append(msgspec.json.decode(line))
        return msgspec.json.encode({"configured": changed})

    shop.acquire()
    control = ControlSocket(shop.path, answer)
    try:
        line = ("update", "shop", "--set", "run.batch-target=2 s", "--unset", "checkpoint.interval")
        assert command(*line).stdout == "run.batch-target: 10 s → 2 s, from the next batch on\n"
        assert json.loads(command(*line, "--json").stdout)["changed"] == changed
        changed.clear()
        assert "nothing has changed" in command(*line).stdout
    finally:
        control.close()
        shop.release()
    assert asked[0]["values"] == {"run.batch-target": "2 s"}
    assert asked[0]["restored"] == ["checkpoint.interval"]
