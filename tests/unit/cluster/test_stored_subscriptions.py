"""What readers ask for, in a real state directory, by real files, on a failing disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_stored_scalings import ME, NEXT, failing

from drivetrain import Application, sinks, sources
from drivetrain.cluster.app_master.stream.stored_subscriptions import StoredSubscriptions
from drivetrain.core.change.graph_version import SubscriptionRecord, version_of
from drivetrain.core.change.subscription_request_queue import WantedSubscription
from drivetrain.core.plan.planner import plan
from drivetrain.errors import DrivetrainError, UnavailableError, UserError
from drivetrain.file_lock import FileLock
from drivetrain.runtime import outside_producer
from drivetrain.runtime.control_requests import SubscriptionRequest
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_requests import WANTED, SubscriptionRequests

HOURS = SubscriptionRecord("report-1.hours", "kept", "report-1", "hours", "")
ASKED = SubscriptionRequest("report-1", "hours", "kept", starts_over=True)


@pytest.fixture
def rundir(tmp_path: Path) -> RunDirectory:
    """A state directory with one version, prepared for an application master of a cluster."""
    app = Application("shop")
    read = app.read(sources.generate(rows=9), name="read")
    read.filter("id > 1", name="kept").sink(sinks.none(), name="out")
    made = RunDirectory(str(tmp_path), "shop", {})
    made.acquire()
    made.begin(plan(app.graph()), version_of(plan(app.graph()), repr), b"code")
    made.preparation.note(ME, {})
    return made


def test_a_reader_that_asks_again_keeps_its_key_until_it_wants_something_else(rundir: RunDirectory) -> None:
    requests = SubscriptionRequests(rundir.path)
    first, again = requests.ask(HOURS), SubscriptionRequests(rundir.path).ask(HOURS)
    assert (again.of, again.beat) == (first.of, first.beat + 1)
    assert StoredSubscriptions(rundir, ME).look().wanted == (again,)
    other = requests.ask(SubscriptionRecord("report-1.hours", "read", "report-1", "hours", ""))
    assert other.of.key != first.of.key
    requests.withdraw(HOURS.id)
    requests.withdraw(HOURS.id)
    assert requests.all() == ()
    assert requests.ask(HOURS).of.key not in (first.of.key, other.of.key)


def test_a_refusal_reaches_the_reader_once(rundir: RunDirectory) -> None:
    mine = StoredSubscriptions(rundir, ME)
    assert outside_producer.subscribed(rundir, ASKED, in_cluster=True) == "it has been asked"
    [wanted] = mine.look().wanted
    mine.refuse(wanted, UserError("the application has no such stream"))
    assert mine.look().refused == {wanted.name}
    with pytest.raises(UserError, match="no such stream"):
        outside_producer.subscribed(rundir, ASKED, in_cluster=True)
    assert mine.look().wanted == ()
    assert outside_producer.subscribed(rundir, ASKED, in_cluster=True) == "it has been asked"


def test_an_application_master_that_was_replaced_refuses_and_forgets_nothing(rundir: RunDirectory) -> None:
    requests, mine = SubscriptionRequests(rundir.path), StoredSubscriptions(rundir, ME)
    wanted = requests.ask(HOURS)
    rundir.preparation.note(NEXT, {})
    for late in (lambda: mine.refuse(wanted, UserError("no")), lambda: mine.forget(wanted)):
        with pytest.raises(UnavailableError, match="another application master"):
            late()
    assert requests.refusal(wanted) is None


def test_only_the_end_of_the_same_subscription_is_forgotten(rundir: RunDirectory) -> None:
    requests, mine = SubscriptionRequests(rundir.path), StoredSubscriptions(rundir, ME)
    of = requests.ask(HOURS).of
    requests.ask_to_end(of)
    ends = WantedSubscription(of, ends=True)
    assert mine.look().wanted == (ends,)
    newer = requests.ask(HOURS)
    mine.forget(ends)
    assert mine.look().wanted == (newer,)
    requests.ask_to_end(of)
    mine.forget(ends)
    assert mine.look().wanted == ()


def test_a_damaged_request_is_no_request_and_is_written_again(rundir: RunDirectory) -> None:
    requests = SubscriptionRequests(rundir.path)
    requests.ask(HOURS)
    (rundir.path / WANTED / HOURS.id).write_text("nonsense")
    (rundir.path / WANTED / "report-1.marks").write_text("")
    assert requests.all() == ()
    assert requests.ask(HOURS) == requests.all()[0]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_error_of_the_disk_leaves_the_former_request_or_the_new_one(
    rundir: RunDirectory, call: str
) -> None:
    requests = SubscriptionRequests(rundir.path)
    before = requests.ask(HOURS)
    with failing(call, lambda _: False) as calls:
        requests.ask(HOURS)
    for failed in range(calls[0]):
        before = requests.ask(HOURS)
        with failing(call, lambda n, failed=failed: n == failed), pytest.raises(DrivetrainError):
            requests.ask(HOURS)
        [now] = requests.all()
        assert (now.of, now.beat - before.beat) in ((before.of, 0), (before.of, 1)), f"{call} {failed}"


def test_an_application_runs_while_its_executors_share_its_lock(rundir: RunDirectory) -> None:
    assert outside_producer.runs(rundir.path)
    rundir.share()
    assert outside_producer.runs(rundir.path)
    rundir.release()
    assert not outside_producer.runs(rundir.path)
    assert FileLock(rundir.path / "lock").take(), "looking leaves no lock behind"


def test_a_reader_in_a_cluster_cannot_read_an_embedded_application(
    rundir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.runtime.outside_producer.is_running_at", lambda home: True)
    with pytest.raises(UserError, match="cannot read one that runs outside of it"):
        outside_producer.subscribed(rundir, ASKED, in_cluster=True)
