"""`drivetrain update`, `rollback`, `versions` and `plan --against` for an application of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from scripted_cluster import ScriptedCluster, world
from typer.testing import Result

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.client import BlockingClient
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ChangeGraph,
    ChangeStatus,
    ConfigurationChanged,
    GiveUpChange,
    GraphEdit,
    StoredVersion,
    Versions,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config import Config
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_state import ChangeState, RolledBackError
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.live_change import Stage
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.graph_versions import Ending
from drivetrain.runtime.running_config import ChangedValue

pytestmark = pytest.mark.timeout(120)

SHOP = """
from drivetrain import Application, sinks, sources

app = Application("shop")
least = app.setting("least", 5)
orders = app.read(sources.json("in", schema="item string, n bigint"), name="orders")
orders.filter(f"n > {least}", name="large").sink(sinks.json("large"), name="large_out")
"""
TRIAL = ChangeState(3, Stage.ON_TRIAL, 3, 2, ("orders",))
DONE = ChangeState(3, Stage.IDLE, 3, 2, (), Outcome.DONE)
FAILED = ChangeState(2, Stage.IDLE, 3, 2, (), Outcome.ROLLED_BACK, "orders", "ZeroDivisionError: n")


class Shop:
    """An application of a scripted cluster, which has two versions; what it is asked to change."""

    def __init__(self, cluster: ScriptedCluster, app_master: ActorRef, asked: list[Message]) -> None:
        self.cluster = cluster
        self.app_master = app_master
        self.asked = asked

    def answers(self, *states: ChangeState | ChangeStatus) -> None:
        """What it answers from now on, one after the other."""
        for state in states:
            self.app_master.tell(state if isinstance(state, ChangeStatus) else ChangeStatus(state))


def version(number: int, text: str, **fields: object) -> GraphVersion:
    Path("made.py").write_text(text)
    made = version_of(plan(load_application("made.py", {"least": "7"}).graph()), fingerprint)
    return msgspec.structs.replace(made, number=number, made_by="ada", **fields)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    one = version(1, SHOP.replace("n > {", "n < {"))
    two = version(2, SHOP, made_how="update", follows=1)
    Path("new.py").write_text(SHOP.replace("n > {", "n >= {"))
    asked: list[Message] = []
    with ScriptedCluster() as cluster:
        app_master = cluster.app_master(world.status_of("shop-1"), asked)
        stored = (StoredVersion(two, Ending(Outcome.DONE, 1)), StoredVersion(one))
        app_master.tell(Versions(stored, 2, None, "shop", {"least": "7"}))
        spec = msgspec.structs.replace(world.SPEC, name="shop", settings={"least": "7"})
        active = world.view_of("shop-1", state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
        cluster.world.put(msgspec.structs.replace(active, spec=spec))
        yield Shop(cluster, app_master, asked)


def test_the_code_goes_to_the_masters_and_the_end_of_the_trial_is_told(
    shop: Shop, command: Callable[..., Result]
) -> None:
    shop.answers(TRIAL, TRIAL, DONE)
    result = command("update", "shop", "new.py", "--yes", "--masters", shop.cluster.masters)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "filter n > 7 filter n >= 7" in text, "the settings are those of the running application"
    assert "version 3 is in force" in text
    [change] = shop.asked
    assert isinstance(change, ChangeGraph)
    assert (change.against, change.number) == (2, 0)
    assert change.code is not None
    assert change.code.file == "new.py"
    stored = shop.cluster.world.code[shop.cluster.world.leader]
    assert change.code.sha256 in stored


def test_a_version_that_fails_ends_with_code_3_and_its_traceback(
    shop: Shop, command: Callable[..., Result]
) -> None:
    shop.answers(TRIAL, FAILED)
    result = command("update", "shop", "new.py", "--json", "--masters", shop.cluster.masters)
    assert result.exit_code == 3
    told = json.loads(result.stdout)["change"]
    assert (told["outcome"], told["fragment"], told["why"]) == (
        "rolled back",
        "orders",
        "ZeroDivisionError: n",
    )
    refusal = ErrorView("change-underway", "another change of the application is under way", got="version 3")
    shop.answers(ChangeStatus(TRIAL, refusal))
    result = command("update", "shop", "new.py", "--yes", "--masters", shop.cluster.masters)
    assert result.exit_code == 2
    assert "another change of the application is under way" in result.stderr


def test_plan_shows_what_update_does(shop: Shop, command: Callable[..., Result]) -> None:
    given = ("--masters", shop.cluster.masters)
    compared = command("plan", "new.py", "--against", "shop", "--set", "least=7", *given)
    assert compared.exit_code == 0, compared.output
    dry = command("update", "shop", "new.py", "--dry-run", *given)
    assert dry.stdout == compared.stdout
    assert shop.asked == []
    Path("new.py").write_text(SHOP.replace("item string, n", "n"))
    restarts = command("update", "shop", "new.py", "--dry-run", *given)
    assert restarts.exit_code == 0
    assert "orders restarted" in " ".join(restarts.stdout.split())
    Path("new.py").write_text(SHOP.replace('"shop"', '"shops"'))
    other = command("update", "shop", "new.py", "--yes", *given)
    assert other.exit_code == 2
    assert "another application" in other.stderr
    assert shop.asked == []


def test_versions_are_those_that_the_application_master_reads(
    shop: Shop, command: Callable[..., Result]
) -> None:
    told = json.loads(command("versions", "shop", "--json", "--masters", shop.cluster.masters).stdout)
    one, two = told["versions"]
    assert (one["version"], one["in_force"], two["version"], two["in_force"]) == (1, False, 2, True)
    assert (two["outcome"], two["changes"]) == ("done", {"large": "swapped"})


def test_a_rollback_names_its_version_or_gives_up_the_one_on_trial(
    shop: Shop, command: Callable[..., Result]
) -> None:
    given = ("--yes", "--masters", shop.cluster.masters)
    shop.answers(ChangeState(2), TRIAL, DONE)
    result = command("rollback", "shop", *given)
    assert result.exit_code == 0, result.output
    assert shop.asked == [ChangeGraph(2, None, 1)]
    assert command("rollback", "shop", "9", *given).exit_code == 2
    trial = ChangeState(2, Stage.ON_TRIAL, 2, 1, ("orders",))
    shop.answers(trial, trial, ChangeState(1, Stage.IDLE, 2, 1, (), Outcome.ROLLED_BACK, None, "given up"))
    result = command("rollback", "shop", *given)
    assert "version 2 was cancelled, version 1 continues" in result.stdout, result.output
    assert shop.asked[1:] == [GiveUpChange(2)]


def test_the_options_of_a_change_reach_the_application_master(
    shop: Shop, command: Callable[..., Result]
) -> None:
    given = ("--even-if-read", "--discard", "--json", "--masters", shop.cluster.masters)
    for line in (("update", "shop", "new.py"), ("rollback", "shop")):
        shop.answers(ChangeState(2), TRIAL, DONE) if line[0] == "rollback" else shop.answers(
            TRIAL, TRIAL, DONE
        )
        result = command(*line, *given)
        assert result.exit_code == 0, result.output
    with BlockingClient(Config.load(None, {}, {"cluster.masters": shop.cluster.masters})) as client:
        shop.answers(TRIAL, TRIAL, DONE)
        client.roll_back("shop", 1, discard=True, even_if_read=True)
    options = [change.options for change in shop.asked if isinstance(change, ChangeGraph)]
    assert options == [ChangeOptions(discards=True, even_if_read=True)] * 3


def test_an_application_that_is_over_or_has_no_master_is_a_clear_error(
    shop: Shop, command: Callable[..., Result]
) -> None:
    given = ("--yes", "--masters", shop.cluster.masters)
    shop.cluster.world.change("shop-1", app_master=None)
    result = command("update", "shop", "new.py", *given)
    assert result.exit_code == 4
    assert "has not answered" in result.stderr
    shop.cluster.world.change("shop-1", state=ApplicationState.KILLED)
    result = command("rollback", "shop", *given)
    assert result.exit_code == 2
    assert "the application has ended" in result.stderr


def test_a_program_changes_an_application(shop: Shop) -> None:
    shop.answers(TRIAL, TRIAL, DONE)
    with BlockingClient(Config.load(None, {}, {"cluster.masters": shop.cluster.masters})) as client:
        assert client.versions("shop").in_force == 2
        assert client.update("shop", "new.py", timeout="1 min") == 3
        shop.answers(TRIAL, FAILED)
        with pytest.raises(RolledBackError, match="version 3 has failed"):
            client.roll_back("shop")
    assert shop.asked[1:] == [ChangeGraph(0, None, 1)]


def test_configuration_keys_change_without_a_file(shop: Shop, command: Callable[..., Result]) -> None:
    shop.app_master.tell(ConfigurationChanged((ChangedValue("run.batch-target", "1 s", "2 s"),)))
    line = ["update", "shop", "--set", "run.batch-target=2 s", "--unset", "checkpoint.interval"]
    at = ("--set", f"cluster.masters={shop.cluster.masters}")
    result = command(*line, *at)
    assert result.exit_code == 0, result.output
    assert "run.batch-target: 1 s → 2 s, from the next batch on" in result.stdout
    assert shop.asked == [ChangeConfiguration({"run.batch-target": "2 s"}, ("checkpoint.interval",))]
    told = json.loads(command(*line, *at, "--json").stdout)
    assert told["application"] == "shop-1"
    assert told["changed"] == [{"name": "run.batch-target", "before": "1 s", "after": "2 s"}]
    error = ErrorView("config", "run.max-batch-bytes can only become smaller", remedy="start it again")
    shop.app_master.tell(ConfigurationChanged(error=error))
    result = command("update", "shop", "--set", "run.max-batch-bytes=9 GiB", *at)
    assert result.exit_code == 2
    assert "can only become smaller" in result.stderr
    asked = len(shop.asked)
    result = command("update", "shop", "--set", "run.delivery=at most once", *at)
    assert "cannot change while the application runs" in result.stderr
    assert len(shop.asked) == asked


PART = """
from drivetrain import sinks

def attach(orders):
    orders.filter("n > 100", name="huge").sink(sinks.json("huge"), name="huge_out")
"""


def test_an_edit_is_made_by_an_executor_shown_and_then_asked_for(
    shop: Shop, command: Callable[..., Result]
) -> None:
    Path("part.py").write_text(PART)
    more = 'orders.filter("n > 100", name="huge").sink(sinks.json("huge"), name="huge_out")\n'
    made = ChangeStatus(ChangeState(2), None, version(0, SHOP + more))
    shop.answers(made, TRIAL, TRIAL, DONE)
    masters = ("--masters", shop.cluster.masters)
    result = command("attach", "shop", "part.py", "--to", "orders", "--yes", *masters)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "huge started it gets messages" in text, text
    assert "version 3 is in force" in text
    looked, changed = shop.asked
    assert isinstance(looked, ChangeGraph)
    assert looked.only_makes
    assert looked.code is not None
    assert looked.code.file == "part.py"
    assert changed == msgspec.structs.replace(looked, only_makes=False)
    assert changed.edit == GraphEdit("attach", "orders")


def test_the_time_of_an_edit_reaches_the_application_master(
    shop: Shop, command: Callable[..., Result]
) -> None:
    Path("part.py").write_text(PART + "\ndef replace(orders):\n    return orders.filter('n > 5')\n")
    more = 'orders.filter("n > 100", name="huge").sink(sinks.json("huge"), name="huge_out")\n'
    made = ChangeStatus(ChangeState(2), None, version(0, SHOP + more))
    ends = ("--at", "1970-01-01T00:01", "--yes", "--json", "--masters", shop.cluster.masters)
    lines = (
        ("attach", "shop", "part.py", "--to", "orders"),
        ("replace", "shop", "large", "part.py"),
        ("remove", "shop", "large"),
    )
    for line in lines:
        shop.answers(made, TRIAL, TRIAL, DONE)
        result = command(*line, *ends)
        assert result.exit_code == 0, result.output
        assert isinstance(shop.asked[-1], ChangeGraph)
        assert shop.asked[-1].options.at == 60_000
    with BlockingClient(Config.load(None, {}, {"cluster.masters": shop.cluster.masters})) as client:
        shop.answers(TRIAL, DONE, TRIAL, DONE, TRIAL, DONE)
        client.attach("shop", "part.py", to="orders", at=60_000)
        client.replace("shop", "large", "part.py", at="1970-01-01T00:01")
        client.remove("shop", "large", at="next-window")
    found = [one.options.at for one in shop.asked[-3:] if isinstance(one, ChangeGraph)]
    assert found == [60_000, 60_000, "next-window"]


def test_subscriptions_are_ended_by_the_application_master(
    shop: Shop, command: Callable[..., Result]
) -> None:
    shop.answers(TRIAL)
    result = command("unsubscribe", "shop", "report/hours", "--masters", shop.cluster.masters)
    assert result.exit_code == 0, result.output
    assert "keeps nothing for report/hours" in result.stdout
    [asked] = shop.asked
    assert asked == ChangeGraph(
        0, edit=GraphEdit("unsubscribe", "report/hours"), options=ChangeOptions(even_if_read=True)
    )


def test_a_file_without_the_function_is_refused_before_anything_is_sent(
    shop: Shop, command: Callable[..., Result]
) -> None:
    Path("part.py").write_text(PART.replace("def attach", "def join"))
    masters = ("--masters", shop.cluster.masters)
    result = command("replace", "shop", "large", "part.py:attach", "--yes", *masters)
    assert result.exit_code == 2
    assert "the file has no function attach" in " ".join(result.stderr.split())
    assert shop.asked == []


def test_what_is_wrong_with_an_edit_is_told_as_it_is(shop: Shop, command: Callable[..., Result]) -> None:
    wrong = ErrorView("user-error", "the application has no processor lrge", remedy="perhaps large")
    refused = ChangeStatus(ChangeState(2), wrong)
    shop.answers(refused)
    result = command("remove", "shop", "lrge", "--yes", "--masters", shop.cluster.masters)
    assert result.exit_code == 2
    assert "perhaps large" in result.stderr
    [looked] = shop.asked
    assert looked == ChangeGraph(2, edit=GraphEdit("remove", "lrge"), only_makes=True)
