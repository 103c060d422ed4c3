"""A new fragment of an application in a cluster also gets the messages that were before the change.

Message n has the event time n seconds. What the new sink shows is compared with all messages from then on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drivetrain.cluster.messages.following import JobStatus
from drivetrain.errors import DrivetrainError, UnavailableError
from whole_cluster import WholeCluster, drivetrain, wait_for, whole_cluster

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.nightly("simulated by test_attempts_under_faults; test_histories reads them on Spark"),
]

LATE_S = 600.0
FROM = 10
SHOP = """
from drivetrain import Application, sinks, sources

app = Application("histories")
place = app.setting("place")
read = app.read(sources.json(place + "/in", schema="n bigint", watch=True), name="read")
stamped = read.with_columns(ts="timestamp_seconds(n)", step="stamped")
timed = stamped.event_time("ts", max_disorder="200 s", name="timed")
kept = timed.filter("n >= 0", name="front").cut().filter("n >= 0", name="kept")
kept.sink(sinks.json(place + "/out"), name="all_out")
"""
PART = """
from drivetrain import sinks

def attach(timed):
    copied = timed.filter("n >= 0", name="{name}_begin").cut().filter("n >= 0", name="{name}")
    copied.sink(sinks.json("{sink}"), name="{name}_out")
"""


@dataclass
class Histories:
    """The application, and how many messages were fed to it."""

    cluster: WholeCluster
    place: Path
    app: str
    fed: list[int] = field(default_factory=list)

    def feed(self, count: int) -> None:
        """Give it the next messages, as one file."""
        numbers = range(len(self.fed), len(self.fed) + count)
        self.fed += numbers
        aside = self.place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        aside.rename(self.place / "in" / f"{len(self.fed):06d}.jsonl")

    def shown(self, sink: str) -> list[int]:
        """The messages that a sink has written."""
        files = sorted((self.place / sink).glob("*.json"))
        return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())

    def wait_shown(self, sink: str, since: int = 0) -> None:
        """Wait until a sink has all messages since one, and compare them."""
        wanted = self.fed[since:]
        wait_for(lambda: len(self.shown(sink)) >= len(wanted), f"all messages in {sink}", LATE_S)
        assert self.shown(sink) == wanted, "every message once"

    def part(self, name: str) -> str:
        """The file with a part of the graph that ends in a sink of its name."""
        file = self.place / f"{name}.py"
        file.write_text(PART.format(name=name, sink=self.place / name))
        return str(file)

    def attach(self, name: str, *more: str) -> tuple[str, ...]:
        """The command that attaches a part with the messages since FROM."""
        moment = f"1970-01-01T00:00:{FROM}"
        return ("attach", self.app, self.part(name), "--to", "timed", "--history", moment, *more)

    def begun(self, *line: str) -> subprocess.Popen[str]:
        """A command of `drivetrain` that runs beside the test."""
        return subprocess.Popen(
            [*drivetrain(), *line],
            cwd=self.cluster.directory,
            env=self.cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self) -> JobStatus | None:
        view, status = self.cluster.status(self.app)
        assert not view.state.is_over, view.why
        return status

    def are_running(self, count: int) -> bool:
        """Whether so many fragments run, and no other one."""
        status = self.status()
        states = [] if status is None else [fragment.state for fragment in status.fragments]
        return states == ["running"] * count


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Histories]:
    place = tmp_path_factory.mktemp("histories")
    (place / "in").mkdir()
    (place / "shop.py").write_text(SHOP)
    sets = (f"place={place}", f"state.dir={place / 'state'}", "app.executors=2", "app.executor-slots=2")
    slow = ("run.max-batch-bytes=4 KiB", "run.history-share=0.5")
    with whole_cluster(place, masters=1, workers=2) as cluster:
        line = (str(place / "shop.py"), "--detached", "--json")
        accepted = cluster.submit(*line, *(part for each in (*sets, *slow) for part in ("--set", each)))
        assert accepted.returncode == 0, accepted.stderr
        one = Histories(cluster, place, json.loads(accepted.stdout)["app_id"])
        one.feed(40)
        one.wait_shown("out")
        yield one


def test_a_part_gets_every_message_since_a_time_once(histories: Histories) -> None:
    cluster = histories.cluster
    with pytest.raises(DrivetrainError, match="nothing in this change can get the messages"):
        cluster.client.update(histories.app, str(histories.place / "shop.py"), history=FROM * 1000)
    dry = cluster.command(*histories.attach("copied", "--dry-run", "--json"), expect=0)
    assert json.loads(dry.stdout)["read_again"] == {"copied": ["read"]}
    change = histories.begun(*histories.attach("copied", "--json", "--timeout", "10 min"))
    while change.poll() is None:  # its trial waits for a batch
        histories.feed(5)
        wait_for(lambda: len(histories.shown("out")) == len(histories.fed), "its own batches", LATE_S)
        time.sleep(2)
    out, err = change.communicate(timeout=LATE_S)
    assert change.returncode == 0, err
    told = json.loads(out)["change"]
    assert (told["outcome"], told["history"]["is_over"]) == ("done", True)
    assert told["history"]["rows"] >= 30
    assert "former messages read" in {stage["stage"] for stage in told["stages"]}
    histories.wait_shown("copied", FROM)
    versions = cluster.command("versions", histories.app, expect=0).stdout
    assert f"version {told['version']} gave its new fragments the messages from" in versions
    assert not list((histories.place / "state").glob("*/former-messages/*"))


def test_reading_is_cancelled_or_given_up_and_nothing_has_changed(histories: Histories) -> None:
    cluster, client = histories.cluster, histories.cluster.client
    histories.feed(600)
    histories.wait_shown("out")
    with pytest.raises(UnavailableError, match="has not ended"):
        client.attach(histories.app, histories.part("again"), to="timed", history=0, timeout="1 s")
    with pytest.raises(DrivetrainError, match="another change of the application is under way") as refused:
        client.remove(histories.app, "kept")
    assert "are read again" in str(refused.value)
    shown = cluster.command("versions", histories.app, "--json", expect=0)
    assert json.loads(shown.stdout)["reading_history"]["fragments"] == ["again"]
    cancelled = cluster.command("rollback", histories.app, "--yes", expect=0)
    assert "was cancelled, version" in cancelled.stdout
    wait_for(
        lambda: not list((histories.place / "state").glob("*/former-messages/*")), "nothing left", LATE_S
    )

    change = histories.begun(*histories.attach("again", "--yes", "--timeout", "10 min"))
    wait_for(lambda: is_reading(histories), "some messages to be read", LATE_S)
    status = histories.status()
    assert status is not None
    for each in status.executors:
        assert each.pid is not None
        os.kill(each.pid, signal.SIGKILL)
    out, err = change.communicate(timeout=LATE_S)
    assert change.returncode == 4, (out, err)
    assert "a fragment that the change concerns is starting" in out + err
    wait_for(lambda: histories.are_running(3), "all fragments to run again", LATE_S)

    done = histories.begun(*histories.attach("again", "--yes", "--timeout", "10 min"))
    while done.poll() is None:
        histories.feed(5)
        wait_for(lambda: len(histories.shown("out")) == len(histories.fed), "its own batches", LATE_S)
        time.sleep(2)
    out, err = done.communicate(timeout=LATE_S)
    assert done.returncode == 0, (out, err)
    histories.wait_shown("again", FROM)
    histories.wait_shown("copied", FROM)
    histories.wait_shown("out")


def is_reading(histories: Histories) -> bool:
    """Whether a change waits for former messages of which some were read."""
    state = histories.cluster.client.change_state(histories.app)
    return state.is_reading_history and state.history is not None and state.history.rows > 0
