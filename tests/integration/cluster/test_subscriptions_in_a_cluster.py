"""Applications of a real cluster that read each other, though executors and application masters of both die.

What the reader shows is compared with a query over what the other application was given.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from drivetrain.errors import UserError
from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster, drivetrain, wait_for, whole_cluster

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.nightly("simulated by test_subscriptions_under_kills; takes minutes"),
]

LATE_S = 900.0
BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
SHOP = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("shop")
place = app.setting("place")
read = app.read(
    sources.json(place + "/in", schema="at timestamp, n bigint", event_time="at", watch=True), name="read"
)
mark = read.filter("n >= {least}", name="mark")
mark.sink(sinks.json(place + "/marked"), name="marked_out")
hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
hourly.sink(sinks.json(place + "/hourly"), name="hourly_out")
"""
REPORT = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("{name}")
place = app.setting("place")
app.read(sources.application("shop", "mark"{policy}), name="marks").sink(
    sinks.json(place + "/{name}-seen"), name="seen_out"
)
hours = app.read(sources.application("shop", "hourly"{policy}), name="hours")
hours.window(windows.tumbling("4 h")).aggregate(n=agg.sum("n"), hours=agg.count(), step="four").sink(
    sinks.json(place + "/{name}-four"), name="four_out"
)
"""


@dataclass
class Shops:
    """The cluster, and what its applications are given and show; messages are two an hour."""

    cluster: WholeCluster
    place: Path
    apps: dict[str, str] = field(default_factory=dict)
    fed: int = 0

    def feed(self, messages: int) -> None:
        for _ in range(0, messages, 3):
            lines = [json.dumps({"at": moment(n), "n": n}) + "\n" for n in range(self.fed, self.fed + 3)]
            aside = self.place / "aside.json"
            aside.write_text("".join(lines))
            aside.rename(self.place / "in" / f"{self.fed:06d}.json")
            self.fed += 3

    def write(self, name: str, **told: object) -> str:
        file = self.place / f"{name}.py"
        file.write_text((SHOP if name.startswith("shop") else REPORT).format(name=name, **told))
        return str(file)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--set", f"place={self.place}", "--set", f"state.dir={self.place / 'state'}")

    def submit(self, name: str, **told: object) -> None:
        accepted = self.cluster.submit(self.write(name, **told), "--detached", "--json", *self.options)
        assert accepted.returncode == 0, accepted.stderr
        self.apps[name] = json.loads(accepted.stdout)["app_id"]

    def rows(self, folder: str) -> list[dict[str, object]]:
        files = sorted((self.place / folder).glob("*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def seen(self, name: str) -> list[int]:
        return sorted(int(str(row["n"])) for row in self.rows(f"{name}-seen"))

    def four(self, name: str) -> dict[int, tuple[int, int]]:
        """The windows of four hours that a reader shows, each with the messages and hours in it."""
        found = self.rows(f"{name}-four")
        shown = {hour_of(row["window_start"]): (int(str(row["n"])), int(str(row["hours"]))) for row in found}
        assert len(shown) == len(found), "a window is shown twice"
        return shown

    def wait_exact(self, name: str) -> None:
        """Wait until a reader shows all; from its first message on that is what one query gives."""
        ended = (self.fed - 1) // 2 - 1  # the newest hour is open, and so is the hour of its result
        wait_for(
            lambda: self.fed - 1 in self.seen(name) and max(self.four(name), default=-4) + 8 > ended,
            f"{name} to show all",
            LATE_S,
        )
        seen, four = self.seen(name), self.four(name)
        assert seen == list(range(seen[0], self.fed)), "a message is missing, or shown twice"
        hours = Counter(n // 2 // 4 * 4 for n in range(self.fed))
        expected = {start: (hours[start], 4) for start in range(min(four), max(four) + 1, 4)}
        assert four == expected

    def pids(self, name: str, kind: str) -> list[int]:
        own = []
        for pid in self.cluster.processes(kind):
            try:
                if self.apps[name] in " ".join(psutil.Process(pid).cmdline()):
                    own.append(pid)
            except psutil.Error:
                continue
        return own

    def kill(self, name: str, kind: str) -> None:
        for pid in self.pids(name, kind):
            os.kill(pid, signal.SIGKILL)


def moment(n: int) -> str:
    return (BEGIN + n * dt.timedelta(minutes=30)).isoformat()


def hour_of(text: object) -> int:
    return int((dt.datetime.fromisoformat(str(text)) - BEGIN).total_seconds()) // 3600


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    place = tmp_path_factory.mktemp("subscriptions")
    (place / "in").mkdir()
    with whole_cluster(place, masters=1, workers=2) as cluster:
        yield Shops(cluster, place)


def test_a_reader_shows_every_message_once_though_processes_of_both_are_killed(shops: Shops) -> None:
    shops.submit("report", policy="")
    wait_for(lambda: "application shop" in str(shops.cluster.command("show", "report").stdout), "a reason")
    shops.submit("shop", least=0)
    is_over = threading.Event()

    def stream() -> None:
        while not is_over.wait(1.0):
            shops.feed(3)

    feeding = threading.Thread(target=stream, daemon=True)
    feeding.start()
    try:
        wait_for(lambda: shops.seen("report") and shops.four("report"), "the first results", LATE_S)
        chance = random.Random(1)
        for kind in (EXECUTOR, APP_MASTER, EXECUTOR):
            for name in chance.sample(["shop", "report"], 2):
                before = len(shops.seen("report"))
                shops.kill(name, kind)
                wait_for(lambda least=before + 6: len(shops.seen("report")) >= least, f"{name} again", LATE_S)
        shops.kill("shop", EXECUTOR)
        shops.kill("report", EXECUTOR)
    finally:
        is_over.set()
        feeding.join()
    shops.feed(24)
    shops.wait_exact("report")
    shown = shops.cluster.command("show", "shop", expect=0).stdout
    assert "/marks" in shown, shown
    reads = shops.cluster.command("show", "report", expect=0).stdout
    assert "shop-" in reads, reads


def test_a_change_of_what_others_read_is_refused_unless_it_is_said(shops: Shops) -> None:
    client = shops.cluster.client
    with pytest.raises(UserError, match="would be made in another way") as refused:
        client.update("shop", shops.write("shop", least=-1))
    assert "/marks reads mark" in str(refused.value.got)
    with pytest.raises(UserError, match="no longer there"):
        client.remove("shop", "mark")
    removed = shops.cluster.command("remove", "shop", "mark", "--yes", "--json", expect=2)
    assert "/marks reads mark, which goes: --even-if-read does it anyway" in removed.stdout
    assert {one.stream for one in client.versions("shop").record.subscriptions} == {"mark", "hourly"}


def test_an_embedded_application_reads_one_of_the_cluster(shops: Shops) -> None:
    line = [*drivetrain(), "run", shops.write("other", policy=', drop_after="1 h"'), *shops.options]
    line += ["--set", "spark.driver-memory=512 MiB", "--set", "spark.shuffle-partitions=2"]
    with (shops.place / "other.log").open("w") as log:
        running = subprocess.Popen(line, cwd=shops.place, stdout=log, stderr=log)
    try:

        def shows() -> bool:
            assert running.poll() is None, (shops.place / "other.log").read_text()
            shops.feed(3)
            return bool(shops.seen("other") and shops.four("other"))

        wait_for(shows, "the embedded reader's results", LATE_S)
        shops.kill("shop", EXECUTOR)
        shops.feed(24)
        shops.wait_exact("other")
        shops.wait_exact("report")
    finally:
        running.terminate()
        running.wait(120)


def test_a_subscription_is_ended_by_the_command(shops: Shops) -> None:
    def unsubscribed() -> bool:
        shops.feed(3)
        return shops.cluster.command("unsubscribe", "shop", "report").returncode == 0

    wait_for(unsubscribed, "the end of the subscriptions", LATE_S)
    over = wait_for(
        lambda: (view := shops.cluster.client.application("report")).state.is_over and view, "its end", LATE_S
    )
    assert "does not keep its stream" in str(over.why)
    readers = {one.reader for one in shops.cluster.client.versions("shop").record.subscriptions}
    assert all(reader.startswith("other-") for reader in readers)
