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
from contextlib import contextmanager
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

app = Application("{name}")
place = app.setting("place")
read = app.read(
    sources.json(place + "/in", schema="at timestamp, n bigint", event_time="at", watch=True), name="read"
)
mark = read.filter("n >= {least}", name="mark")
mark.sink(sinks.json(place + "/{name}-marked"), name="marked_out")
hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
hourly.sink(sinks.json(place + "/{name}-hourly"), name="hourly_out")
"""
AWAY = """
from drivetrain import Application, sinks, sources

app = Application("{name}")
place = app.setting("place")
for stream, policy in (("mark", {{}}), ("hourly", {{"drop_after": "3 s"}})):
    app.read(sources.application("small", stream, **policy), name=stream).sink(
        sinks.json(place + "/{name}-" + ("seen" if stream == "mark" else stream)), name=stream + "_out"
    )
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
        file.write_text(
            {"shop": SHOP, "small": SHOP, "away": AWAY}.get(name, REPORT).format(name=name, **told)
        )
        return str(file)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--set", f"place={self.place}", "--set", f"state.dir={self.place / 'state'}")

    def submit(self, name: str, *more: str, **told: object) -> None:
        accepted = self.cluster.submit(self.write(name, **told), "--detached", "--json", *self.options, *more)
        assert accepted.returncode == 0, accepted.stderr
        self.apps[name] = json.loads(accepted.stdout)["app_id"]

    def told(self, name: str, key: str) -> list[object]:
        """The values of a key in what `drivetrain show --json` tells of an application."""
        found: list[object] = []
        left: list[object] = [json.loads(self.cluster.command("show", name, "--json", expect=0).stdout)]
        while left:
            part = left.pop()
            left += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
            found += [part[key]] if isinstance(part, dict) and part.get(key) else []
        return found

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

    @contextmanager
    def embedded(self, name: str, **told: object) -> Iterator[subprocess.Popen[bytes]]:
        """An application that `drivetrain run` runs on the state directory of the cluster's."""
        line = [*drivetrain(), "run", self.write(name, **told), *self.options]
        line += ["--set", "spark.driver-memory=512 MiB", "--set", "spark.shuffle-partitions=2"]
        with (self.place / f"{name}.log").open("a") as log:
            running = subprocess.Popen(line, cwd=self.place, stdout=log, stderr=log)
        try:
            yield running
            assert running.poll() is None, (self.place / f"{name}.log").read_text()
        finally:
            running.terminate()
            running.wait(120)

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
    with shops.embedded("other", policy=', drop_after="1 h"') as running:

        def shows() -> bool:
            assert running.poll() is None, (shops.place / "other.log").read_text()
            shops.feed(3)
            return bool(shops.seen("other") and shops.four("other"))

        wait_for(shows, "the embedded reader's results", LATE_S)
        shops.kill("shop", EXECUTOR)
        shops.feed(24)
        shops.wait_exact("other")
        shops.wait_exact("report")


def test_messages_that_are_damaged_before_they_are_read_are_computed_again(shops: Shops) -> None:
    subscriptions = shops.cluster.client.versions("shop").record.subscriptions
    id = next(one.id for one in subscriptions if one.reader.startswith("report-") and one.source == "marks")
    kept = next((shops.place / "state").glob(f"shop-*/channels/*{id}*")) / "segments"
    known = set(kept.iterdir())
    shops.kill("report", APP_MASTER)
    shops.kill("report", EXECUTOR)
    shops.feed(3)
    (newest,) = wait_for(lambda: set(kept.iterdir()) - known, "what the reader will find", LATE_S)
    newest.write_bytes(b"")
    assert shops.fed - 1 not in shops.seen("report"), "it has read the messages before they were damaged"
    shops.feed(24)
    shops.wait_exact("report")


def test_an_application_waits_for_a_reader_that_is_away_and_drops_what_it_may(shops: Shops) -> None:
    def hours(name: str) -> list[int]:
        return sorted(hour_of(row["window_start"]) for row in shops.rows(f"{name}-hourly"))

    def is_waited_for() -> bool:
        shops.feed(3)
        return any("away" in str(who) for who in shops.told("small", "blocked_by"))

    def dropped() -> int:
        return sum(int(str(count)) for count in shops.told("small", "dropped"))

    shops.submit("small", "--set", "subscription.keep-bytes=8 KiB", least=0)
    with shops.embedded("away"):
        wait_for(lambda: shops.feed(3) or (shops.seen("away") and hours("away")), "the reader", LATE_S)
    wait_for(is_waited_for, "batches to wait", LATE_S)
    shown = len(shops.rows("small-marked"))
    shops.feed(9)
    wait_for(dropped, "the hours that nobody has read to be dropped", LATE_S)
    assert len(shops.rows("small-marked")) == shown < shops.fed, "a batch has begun meanwhile"
    with shops.embedded("away"):
        wait_for(lambda: shops.fed - 1 in shops.seen("away"), "all messages", LATE_S)
        wait_for(
            lambda: hours("away")[-1] == (shops.fed - 1) // 2 - 1, "the newest hour that is over", LATE_S
        )
    seen, read = shops.seen("away"), hours("away")
    assert seen == list(range(seen[0], shops.fed)), "a message is missing, or shown twice"
    assert len(set(read)) == len(read)
    made = hours("small")  # those before the subscription were not for the reader, and not dropped
    since = [hour for hour in made if hour >= read[0]]
    assert len(since) - len(read) <= dropped() <= len(made) - len(read), "what was dropped is counted"


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
