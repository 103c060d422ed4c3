"""An application of a cluster changes while it processes; whatever dies meanwhile, every message counts once.

One application of two fragments runs through all of it. Its output says which version each message went
through; the test feeds messages in steps, so it knows which version that must be.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from drivetrain.cluster.client import connect
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.config import Config
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.errors import DrivetrainError, UnavailableError
from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster, drivetrain, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

LATE_S = 900.0
"""How long what follows from something may take, on a machine that has much else to do."""

SHOP = """
from drivetrain import Application, sinks, sources
import marking

app = Application("shop")
place = app.setting("place")
read = app.read(sources.json(place + "/in", schema="n bigint", watch=True), name="read")
kept = read.filter("n >= -{version}", name="kept").cut()
marked = kept.with_columns(version=marking.mark, step="marked")
marked.sink(sinks.json(place + "/out"), name="out")
"""
MORE = """
tapped = marked.filter("n >= 0", name="tapped").cut()
tapped.with_columns(twice="n * 2", step="more").sink(sinks.json(place + "/more"), name="more_out")
"""
TAPPED = """
from drivetrain import sinks

def attach(marked):
    tapped = marked.with_columns(by="1", step="tapped")
    tapped.sink(sinks.json("{sink}"), name="tapped_out")

def replace(marked):
    return marked.with_columns(by="2", step="tapped")
"""
PART = """
from drivetrain import KeyedTask, ValueState, sinks

class Numbered(KeyedTask):
    key = "version"
    output = "n bigint, version bigint, nth bigint"
    count = ValueState(int)

    def on_next(self, row):
        self.count.set((self.count.get() or 0) + 1)
        yield row.n, row.version, self.count.get()

class Renumbered(Numbered):
    count = ValueState(str)

    def on_next(self, row):
        self.count.set(str(int(self.count.get() or 0) + 1))
        yield row.n, row.version, int(self.count.get())

def renumber(tapped):
    return tapped.process(Renumbered)

def attach(marked):
    tapped = marked.filter("n >= 0", name="begin").cut().filter("n >= 0", name="tapped")
    tapped.process(Numbered, name="more").sink(sinks.json("{place}/more"), name="more_out")

def replace(stream):
    return stream.filter("n >= -1")
"""
"""It numbers messages by a state. The filter before that is in the trunk of its query."""
TIMED = """
from drivetrain import Application, sinks, sources

app = Application("timed")
place = app.setting("place")
read = app.read(sources.json(place + "/in", schema="n bigint", watch=True), name="read")
stamped = read.with_columns(ts="timestamp_seconds(n)", step="stamped")
timed = stamped.event_time("ts", max_disorder="200 s", name="timed")
kept = timed.filter("n >= -{version}", name="kept").cut()
marked = kept.with_columns(version="{version}", step="marked")
marked.sink(sinks.json(place + "/out"), name="timed_out")
"""
"""The time of a message is n seconds. Both fragments differ from version to version."""
MARKING = """
def mark(n: int) -> int:
    {body}
"""
FAILS = "return 1 // (n - n)"


@dataclass
class Shop:
    """The application, what was fed to it, and the version that each message must have gone through."""

    cluster: WholeCluster
    place: Path
    app: str = ""
    expected: dict[int, int] = field(default_factory=dict)

    def write(self, version: int, body: str | None = None, more: str = "") -> str:
        """The file of a version, with a module beside it; returns its name."""
        folder = self.place / f"v{version}"
        folder.mkdir(exist_ok=True)
        (folder / "shop.py").write_text(SHOP.format(version=version) + more)
        (folder / "marking.py").write_text(MARKING.format(body=body or f"return {version}"))
        return str(folder / "shop.py")

    def feed(self, version: int, count: int = 4) -> None:
        """Give it messages, all of which must go through a version."""
        numbers = range(len(self.expected), len(self.expected) + count)
        self.expected |= dict.fromkeys(numbers, version)
        aside = self.place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        aside.rename(self.place / "in" / f"{len(self.expected)}.jsonl")

    def shown(self, sink: str = "out") -> list[tuple[int, int]]:
        """Each message that a sink has written, with the version that marked it."""
        return sorted(zip(self.rows(sink, "n"), self.rows(sink, "version"), strict=True))

    def rows(self, sink: str, column: str) -> list[int]:
        """A column of what a sink has written."""
        files = sorted((self.place / sink).glob("*.json"))
        return [json.loads(line)[column] for file in files for line in file.read_text().splitlines()]

    def kill_executor_of(self, fragment: str) -> None:
        """End the process of the executor that runs a fragment, and wait until all run elsewhere.

        Its Java process may outlive it for a moment, and plan a batch, which is the version's before then.
        """
        executor = self.attempts()[fragment][1]
        _, status = self.status()
        assert status is not None
        [pid] = [each.pid for each in status.executors if each.executor == executor]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        def are_moved() -> bool:
            return all(now != executor for _, now in self.attempts().values())

        wait_for(are_moved, "the fragments to run elsewhere", LATE_S)

    def kill_app_master(self) -> None:
        """End the application master's process, and wait for its successor."""
        epoch = self.status()[0].epoch
        [app_master] = self.cluster.processes(APP_MASTER)
        os.kill(app_master, signal.SIGKILL)
        wait_for(lambda: self.status()[0].epoch > epoch, "another application master", LATE_S)

    def wait_shown(self) -> None:
        """Wait until everything is written, and compare it."""
        wait_for(lambda: len(self.shown()) >= len(self.expected), "all messages to be written", LATE_S)
        assert self.shown() == sorted(self.expected.items())

    def status(self) -> tuple[ApplicationView, JobStatus | None]:
        view, status = self.cluster.status(self.app)
        assert not view.state.is_over, view.why
        return view, status

    def attempts(self) -> dict[str, tuple[int, str | None]]:
        """The attempt and the executor of each fragment, once all run."""

        def look() -> dict[str, tuple[int, str | None]] | None:
            _, status = self.status()
            if status is None or not status.fragments:
                return None
            running = all(fragment.state == "running" for fragment in status.fragments)
            return {f.fragment: (f.attempt, f.executor) for f in status.fragments} if running else None

        return wait_for(look, "all fragments to run", LATE_S)

    def batches(self) -> int:
        """The newest batch that a fragment has committed."""
        found = (self.place / "state").glob("*/fragments/*/checkpoint/commits/*")
        return max(int(file.name) for file in found if file.name.isdigit())

    def update(self, file: str) -> Future[int]:
        """Change it by its client, in another thread; the version, once its trial is over."""
        return begun(lambda: self.cluster.client.update(self.app, file, timeout="15 min"))

    def wait_on_trial(self, number: int, update: Future[int] | None = None) -> None:
        """Wait until a version is in force, and on trial; raises what the update raises."""

        def look() -> bool:
            if update is not None and update.done():
                update.result()
            try:
                state = self.cluster.client.change_state(self.app)
            except UnavailableError:
                return False  # another application master is starting
            return (state.version, state.stage.value) == (number, "on trial")

        wait_for(look, f"version {number} to be on trial", LATE_S)

    def next_version(self) -> int:
        """The number that the next version gets."""
        return len(self.outcomes()) + 1

    def outcomes(self) -> list[str | None]:
        """How the change to each version has ended, the oldest first."""
        versions = self.cluster.client.versions(self.app).versions.values()
        return [None if one.ending is None else one.ending.outcome.value for one in versions]


def begun(work: Callable[[], int]) -> Future[int]:
    """Work in a thread that does not hold up the end of a test that has failed."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is wanted
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def listening(pid: int) -> list[int]:
    """The ports at which a process listens."""
    found = psutil.Process(pid).net_connections(kind="tcp")
    return [one.laddr.port for one in found if one.status == psutil.CONN_LISTEN]


@contextmanager
def flooded(ports: list[int]) -> Iterator[Callable[[], int]]:
    """Connections of strangers to all ports until the block ends: silent, too short, nonsense; counted."""
    is_over, done = threading.Event(), itertools.count()
    made = [0]

    def flood() -> None:
        held: deque[socket.socket] = deque()
        while not is_over.is_set():
            number = next(done)
            with suppress(OSError):  # it was refused or closed, as it should be
                connection = socket.create_connection(("127.0.0.1", ports[number % len(ports)]), 5)
                held.append(connection)
                connection.send((b"", b"\0", b"\xff" * 20_000, b"GET / HTTP/1.1\r\n\r\n")[number // 7 % 4])
            made[0] = number + 1
            while len(held) > 100:
                held.popleft().close()
        for connection in held:
            connection.close()

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: made[0]
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    place = tmp_path_factory.mktemp("changing")
    (place / "in").mkdir()
    with whole_cluster(place, masters=3, workers=2, console=True) as cluster:
        shop = Shop(cluster, place)
        accepted = cluster.submit(
            *(shop.write(1), "--detached", "--json", "--set", f"place={place}"),
            *("--set", f"state.dir={place / 'state'}"),
        )
        assert accepted.returncode == 0, accepted.stderr
        shop.app = json.loads(accepted.stdout)["app_id"]
        shop.feed(1)
        shop.wait_shown()
        yield shop


def test_it_goes_over_to_other_code_while_its_queries_go_on(shop: Shop) -> None:
    """The update is asked for through the console, by a command that knows no masters."""
    before, file, number = shop.attempts(), shop.write(2), shop.next_version()
    assert shop.cluster.console is not None
    through = ("--console", shop.cluster.console["entry"])
    with subprocess.Popen(
        [*drivetrain(), "update", shop.app, file, "--json", "--timeout", "10 min", *through],
        cwd=shop.cluster.directory,
        env=shop.cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as update:
        shop.wait_on_trial(number)
        with pytest.raises(DrivetrainError, match="another change of the application is under way"):
            shop.cluster.client.roll_back(shop.app, 1)
        shop.feed(2)
        out, err = update.communicate(timeout=LATE_S)
    assert update.returncode == 0, err
    told = json.loads(out)
    assert (told["change"]["version"], told["change"]["outcome"]) == (number, "done")
    assert {change["id"]: change["fate"] for change in told["changes"]} == {
        **dict.fromkeys(("read", "out"), "kept"),
        **dict.fromkeys(("kept", "marked"), "swapped"),
    }
    shop.feed(2)
    shop.wait_shown()
    assert shop.attempts() == before, "no fragment was started again"
    assert shop.outcomes()[-1] == "done"


@pytest.mark.nightly("test_live_changes; test_app_master_under_faults")
def test_a_version_that_fails_goes_back_by_itself_and_says_where(shop: Shop) -> None:
    before, runs, number = shop.attempts(), max(shop.expected.values()), shop.next_version()
    update = shop.update(shop.write(3, FAILS))
    shop.wait_on_trial(number, update)
    shop.feed(runs)
    with pytest.raises(RolledBackError, match=f"version {number} has failed") as failed:
        update.result(LATE_S)
    assert failed.value.where == "fragment marked"
    assert "ZeroDivisionError" in str(failed.value.user_traceback)
    assert "1 // (n - n)" in str(failed.value.user_traceback)
    shop.wait_shown()
    assert shop.attempts() == before, "no fragment was started again"
    assert shop.outcomes()[-1] == "rolled back"


@pytest.mark.nightly("simulated by test_attempts_under_faults; test_job")
def test_code_that_fails_again_and_again_is_corrected_while_its_fragment_waits_for_a_restart(
    shop: Shop,
) -> None:
    """The version has proven itself before the message on which it fails."""
    fails, corrected, last = shop.next_version(), shop.next_version() + 1, len(shop.expected) + 4
    update = shop.update(shop.write(fails, f"return {fails} // (n < {last})"))
    shop.wait_on_trial(fails, update)
    shop.feed(fails)
    assert update.result(LATE_S) == fails
    shop.wait_shown()
    attempts = shop.attempts()
    shop.feed(corrected)  # the batch that fails; the version that computes it in the end is the next one

    def waits() -> bool:
        _, status = shop.status()
        found = {} if status is None else {f.fragment: f for f in status.fragments}
        return "marked" in found and found["marked"].attempt > 4 and found["marked"].state == "created"

    wait_for(waits, "the fragment to wait for its fourth restart", LATE_S)
    assert shop.update(shop.write(corrected)).result(LATE_S) == corrected
    shop.wait_shown()
    others = {id: attempt for id, attempt in shop.attempts().items() if attempt == attempts[id]}
    assert others.keys() == attempts.keys() - {"marked"}, "the other fragment was not started again"
    assert shop.outcomes()[-2:] == ["done", "done"]


@pytest.mark.nightly("test_flood and test_unproven_peers, without Spark")
def test_beside_a_flood_of_strangers_it_processes_and_nothing_is_started_again(shop: Shop) -> None:
    before, epoch, version = shop.attempts(), shop.status()[0].epoch, max(shop.expected.values())
    # Not executors: in their processes PySpark listens, too, and takes one connection after the other.
    parts = ("cli master", "cli worker", APP_MASTER)
    places = {part: listening(pid) for part in parts for pid in shop.cluster.processes(part)}
    assert all(places.get(part) for part in parts), f"who listens: {places}"
    with flooded([port for ports in places.values() for port in ports]) as connections:
        for rounds in range(1, 6):
            shop.feed(version)
            shop.wait_shown()
            wait_for(lambda least=rounds * 400: connections() >= least, "the flood", LATE_S)
    assert shop.attempts() == before, "no fragment was started again"
    assert shop.status()[0].epoch == epoch


@pytest.mark.nightly("test_attempts_under_faults; other tests of this module change the same application")
def test_a_client_through_the_console_asks_for_the_same(shop: Shop) -> None:
    """Reads, configuration, a savepoint, stacks and a change back, of the real cluster by its console."""
    assert shop.cluster.console is not None
    direct, before, runs = shop.cluster.client, shop.attempts(), max(shop.expected.values())
    with connect(Config.load(None, {}, {"client.console": shop.cluster.console["entry"]})) as client:
        assert client.application("shop").app_id == shop.app
        assert {one.name for one in client.workers()} == {one.name for one in direct.workers()}
        assert [one.address for one in client.masters()] == shop.cluster.masters
        view, status = client.status(shop.app)
        assert status is not None
        assert (view.app_id, {each.fragment for each in status.fragments}) == (shop.app, set(before))
        known = (client.versions(shop.app), direct.versions(shop.app))
        assert [each.versions.keys() for each in known] == [known[1].versions.keys()] * 2
        [changed] = client.configure(shop.app, {"run.max-batch-bytes": "1 MiB"})
        assert (changed.before, changed.after) == ("512 MiB", "1 MiB")
        [restored] = direct.configure(shop.app, {}, ["run.max-batch-bytes"])
        assert (restored.before, restored.after) == ("1 MiB", "512 MiB")
        assert "stream execution thread" in client.threads(shop.app).java
        assert {each.process for each in client.logs(shop.app)} == {
            each.process for each in direct.logs(shop.app)
        }
        assert (client.savepoint(shop.app, None, "10 min") / "manifest.json").is_file()
        number = shop.next_version()
        back = begun(lambda: client.roll_back(shop.app, 1, "15 min"))
        shop.wait_on_trial(number)
        shop.feed(1)
        assert back.result(LATE_S) == number
        file = shop.write(runs)
        again = begun(lambda: client.update(shop.app, file, timeout="15 min"))
        shop.wait_on_trial(number + 1)
        shop.feed(runs)
        assert again.result(LATE_S) == number + 1
    shop.wait_shown()
    assert shop.attempts() == before, "no fragment was started again"
    assert shop.outcomes()[-2:] == ["done", "done"]


def test_what_does_not_compile_changes_nothing(shop: Shop) -> None:
    broken, before = Path(shop.write(4)), shop.outcomes()
    broken.write_text(broken.read_text().replace("marked.sink(", 'marked.filter("nothing > 1").sink('))
    with pytest.raises(DrivetrainError, match="nothing"):
        shop.cluster.client.update(shop.app, str(broken))
    assert shop.outcomes() == before
    assert not list((shop.place / "state").glob("*/versions/proposed-*"))


def test_threads_of_an_executor_are_shown_in_python_and_java(shop: Shop) -> None:
    _, status = shop.status()
    assert status is not None
    for executor in (None, *(each.executor for each in status.executors)):
        stacks = shop.cluster.client.threads(shop.app, executor)
        assert executor in (None, stacks.executor)
        assert '"MainThread"' in stacks.python
        assert "drivetrain/cluster/executor" in stacks.python
        assert "stream execution thread" in stacks.java
    with pytest.raises(DrivetrainError, match="no executor has reported what its threads do") as caught:
        shop.cluster.client.threads(shop.app, "nobody")
    assert str(stacks.executor) in str(caught.value.got)


@pytest.mark.nightly("test_local_cluster kills processes; simulated by test_attempts_under_faults")
def test_the_leader_the_application_master_and_an_executor_die_and_every_message_counts_once(
    shop: Shop,
) -> None:
    """The last two at the same moment: a Java process less. test_whole_cluster kills each by itself."""
    cluster, attempts, version = shop.cluster, shop.attempts(), max(shop.expected.values())
    epoch = shop.status()[0].epoch
    leader = cluster.wait_leader()
    cluster.kill(leader)
    shop.feed(version)
    cluster.wait_leader(other_than=leader)
    cluster.restart(leader)
    shop.wait_shown()
    assert shop.attempts() == attempts, "no fragment was started again"
    assert shop.status()[0].epoch == epoch

    _, status = shop.status()
    assert status is not None
    executors = [each.pid for each in status.executors if each.pid is not None]
    for pid in (*cluster.processes(APP_MASTER), *executors):
        os.kill(pid, signal.SIGKILL)
    shop.feed(version)
    wait_for(lambda: shop.status()[0].epoch > epoch, "another application master", LATE_S)
    shop.wait_shown()
    assert not set(executors) & set(cluster.processes(EXECUTOR)), "its executors are gone"


@pytest.mark.nightly("test_configuration_update, embedded; simulated by test_attempts_under_faults")
def test_configuration_keys_change_for_executors_and_outlast_the_application_master(shop: Shop) -> None:
    attempts, version = shop.attempts(), max(shop.expected.values())
    line = ("update", shop.app, "--set", "run.max-batch-bytes=1 KiB", "--json")
    changed = shop.cluster.command(*line)
    assert changed.returncode == 0, changed.stderr
    assert json.loads(changed.stdout)["changed"][0]["after"] == "1 KiB"
    before = shop.batches()
    shop.feed(version, 600)  # some 7 KiB
    shop.wait_shown()
    wait_for(lambda: shop.batches() >= before + 4, "batches of a KiB", LATE_S)
    assert shop.attempts() == attempts
    epoch = shop.status()[0].epoch
    [app_master] = shop.cluster.processes(APP_MASTER)
    os.kill(app_master, signal.SIGKILL)
    wait_for(lambda: shop.status()[0].epoch > epoch, "another application master", LATE_S)
    shop.attempts()
    [restored] = shop.cluster.client.configure(shop.app, {}, ["run.max-batch-bytes"])
    assert (restored.before, restored.after) == ("1 KiB", "512 MiB")


def come_and_go(
    shop: Shop, version: int, during_trial: Callable[[], None], leaving: Callable[[], None]
) -> None:
    """One more fragment starts, takes what comes from then on, and leaves; something befalls it twice."""

    def come() -> Future[int]:
        return shop.update(shop.write(version, more=MORE))

    def go() -> Future[int]:
        return shop.update(shop.write(version + 1))

    come_by(shop, version, come, during_trial)
    go_by(shop, version + 1, go, leaving)


def come_by(
    shop: Shop, version: int, come: Callable[[], Future[int]], during_trial: Callable[[], None]
) -> None:
    """A fragment comes by a change after which messages go through `version`."""
    number, seen, start = shop.next_version(), len(shop.shown("more")), len(shop.expected)
    update = come()
    shop.wait_on_trial(number, update)
    wait_for(lambda: "more" in shop.attempts(), "the fragment to start", LATE_S)
    during_trial()
    wait_for(lambda: "more" in shop.attempts(), "the fragment to run again", LATE_S)
    shop.feed(version, 7)
    assert update.result(LATE_S) == number
    shop.wait_shown()
    taken = sorted((n, v) for n, v in shop.expected.items() if n >= start)
    wait_for(lambda: len(shop.shown("more")) >= seen + len(taken), "all messages in the new sink", LATE_S)
    assert [row for row in shop.shown("more") if row[0] >= start] == taken, "every message once"


def go_by(shop: Shop, version: int, go: Callable[[], Future[int]], leaving: Callable[[], None]) -> None:
    """The fragment leaves by a change after which messages go through `version`; it takes none of them."""
    number, before = shop.next_version(), shop.shown("more")
    update = go()
    shop.wait_on_trial(number, update)
    shop.feed(version)
    assert update.result(LATE_S) == number
    leaving()
    shop.feed(version)
    wait_for(lambda: "more" not in shop.attempts(), "the fragment to leave", LATE_S)
    shop.wait_shown()
    assert shop.shown("more") == before, "nothing twice, and nothing new"
    assert not list((shop.place / "state").glob("*/fragments/more"))
    assert shop.outcomes()[-2:] == ["done", "done"]


def drop_its_state(shop: Shop, runs: int, file: str) -> None:
    """The processor gets another state, which begins empty."""
    start, seen, number = len(shop.expected), len(shop.shown("more")), shop.next_version()
    refused = shop.cluster.command("replace", shop.app, "more", file, "--dry-run", "--json")
    assert refused.returncode == 2
    why = {change["id"]: change["why"] for change in json.loads(refused.stdout)["changes"]}
    assert "--drop-state more drops that state" in why["more"]
    client = shop.cluster.client
    changed = begun(lambda: client.replace(shop.app, "more", file, drop_state=["more"], timeout="15 min"))
    shop.wait_on_trial(number, changed)
    shop.feed(runs)
    assert changed.result(LATE_S) == number
    shop.wait_shown()
    wait_for(lambda: len(shop.shown("more")) >= seen + len(shop.expected) - start, "all messages", LATE_S)
    numbered = dict(zip(shop.rows("more", "n"), shop.rows("more", "nth"), strict=True))
    since = sorted(nth for n, nth in numbered.items() if n >= start)
    assert since == list(range(1, len(shop.expected) - start + 1)), "from an empty state on"


@pytest.mark.nightly("test_fragment_changes; test_app_master_under_faults")
def test_a_part_is_attached_to_the_running_graph_and_removed_again(shop: Shop) -> None:
    """In between its query restarts alone, for another filter before its state, which it keeps."""
    part, runs = shop.place / "more.py", max(shop.expected.values())
    part.write_text(PART.format(place=shop.place))

    def attach() -> int:
        given = ("attach", shop.app, str(part), "--to", "marked", "--json", "--timeout", "15 min")
        changed = shop.cluster.command(*given)
        assert changed.returncode == 0, changed.stderr
        shown = json.loads(changed.stdout)
        fates = {change["id"]: change["fate"] for change in shown["changes"]}
        assert fates["begin"] == fates["more"] == fates["more_out"] == "started", fates
        assert fates["out"] == "kept"
        return int(shown["change"]["version"])

    def remove() -> int:
        return shop.cluster.client.remove(shop.app, "begin", timeout="15 min")

    start = len(shop.expected)
    come_by(shop, runs, lambda: begun(attach), lambda: None)
    before, number = shop.attempts(), shop.next_version()
    dry = shop.cluster.command("replace", shop.app, "tapped", str(part), "--dry-run", "--json")
    assert {c["fate"] for c in json.loads(dry.stdout)["changes"]} == {"kept", "restarted"}, dry.stdout
    replaced = begun(lambda: shop.cluster.client.replace(shop.app, "tapped", str(part), timeout="15 min"))
    shop.wait_on_trial(number, replaced)
    shop.feed(runs)
    assert replaced.result(LATE_S) == number
    shop.wait_shown()
    wait_for(lambda: len(shop.shown("more")) >= len(shop.expected) - start, "the query that follows", LATE_S)
    assert sorted(shop.rows("more", "nth")) == list(range(1, len(shop.expected) - start + 1)), "its state"
    drop_its_state(shop, runs, f"{part}:renumber")
    assert shop.attempts() == before, "no attempt was started again"
    go_by(shop, runs, lambda: begun(remove), lambda: None)
    refused = shop.cluster.command("remove", shop.app, "begin", "--yes")
    assert refused.returncode == 2
    assert "the application has no processor begin" in refused.stderr


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_a_new_fragment_whose_executor_is_killed_takes_every_message_once_and_leaves(shop: Shop) -> None:
    come_and_go(shop, 10, lambda: shop.kill_executor_of("more"), lambda: None)


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_new_fragments_come_and_go_while_processes_are_killed(shop: Shop) -> None:
    def nothing() -> None:
        pass

    come_and_go(shop, 20, shop.kill_app_master, nothing)
    come_and_go(shop, 30, nothing, shop.kill_app_master)
    come_and_go(shop, 40, lambda: shop.kill_executor_of("read"), lambda: shop.kill_executor_of("read"))


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_the_application_master_is_killed_during_a_trial(shop: Shop) -> None:
    number = shop.next_version()
    update = shop.update(shop.write(5))
    shop.wait_on_trial(number, update)
    epoch = shop.status()[0].epoch
    [app_master] = shop.cluster.processes("drivetrain.cluster.app_master")
    os.kill(app_master, signal.SIGKILL)
    wait_for(lambda: shop.status()[0].epoch > epoch, "another application master", LATE_S)
    shop.wait_on_trial(number)
    shop.attempts()
    shop.feed(5)
    assert update.result(LATE_S) == number
    shop.wait_shown()


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_an_executor_is_killed_during_a_trial(shop: Shop) -> None:
    before, number = shop.attempts(), shop.next_version()
    update = shop.update(shop.write(6))
    shop.wait_on_trial(number, update)
    _, status = shop.status()
    assert status is not None
    pid = status.executors[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def are_moved() -> bool:
        after = shop.attempts()
        return all(after[id][1] != executor for id, (_, executor) in before.items())

    # Its Java process may outlive it for a moment, and plan a batch, which is the version's before then.
    wait_for(are_moved, "the fragments to run elsewhere", LATE_S)
    shop.feed(6)
    assert update.result(LATE_S) == number
    shop.wait_shown()


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_fragments_of_two_executors_hand_over_at_a_time_though_one_is_killed(shop: Shop) -> None:
    place = shop.place / "timed"
    (place / "in").mkdir(parents=True)

    def write(version: int) -> str:
        file = place / f"v{version}.py"
        file.write_text(TIMED.format(version=version))
        return str(file)

    def feed(*numbers: int) -> None:
        """The old version is to mark what is before 150, the new one the rest."""
        timed.expected |= {n: 1 if n < 150 else 2 for n in numbers}
        aside = place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        aside.rename(place / "in" / f"{len(timed.expected)}.jsonl")

    accepted = shop.cluster.submit(
        *(write(1), "--detached", "--json", "--set", f"place={place}"),
        *("--set", f"state.dir={place / 'state'}", "--set", "app.executors=2"),
    )
    assert accepted.returncode == 0, accepted.stderr
    timed = Shop(shop.cluster, place, json.loads(accepted.stdout)["app_id"])
    feed(1, 2, 3)
    timed.wait_shown()
    client, line = timed.cluster.client, ("update", timed.app, write(2), "--json")
    late = timed.cluster.command(*line, "--at", "1970-01-01T00:00:02")
    assert late.returncode == 2
    assert "messages of that time and later are processed already" in late.stderr
    with pytest.raises(DrivetrainError, match="there is no next one"):
        client.update(timed.app, write(2), at="next-window")
    update = begun(lambda: client.update(timed.app, write(2), at="1970-01-01T00:02:30", timeout="15 min"))
    timed.wait_on_trial(2, update)
    state = client.change_state(timed.app)
    assert (state.at_ms, len(state.both)) == (150_000, 2)
    feed(149, 10, 150, 200)
    assert update.result(LATE_S) == 2
    with pytest.raises(DrivetrainError, match="version 1 is handing over to version 2"):
        client.update(timed.app, write(3))
    timed.kill_executor_of("kept--marked" if "kept--marked" in timed.attempts() else "marked")
    feed(140, 160)
    timed.wait_shown()
    feed(400)
    wait_for(lambda: not client.change_state(timed.app).both, "the old version to end", LATE_S)
    feed(401)
    timed.wait_shown()
    shown = timed.cluster.command("versions", timed.app)
    assert "version 2 took the messages from" in shown.stdout, shown.stdout
    a_part_comes_and_goes_at_a_time(timed, feed)
    client.kill(timed.app)


def a_part_comes_and_goes_at_a_time(timed: Shop, feed: Callable[..., None]) -> None:
    """A part is attached through the console, replaced by the masters, and removed by a command."""
    assert timed.cluster.console is not None
    direct, part, sink = timed.cluster.client, timed.place / "part.py", timed.place / "tapped"
    part.write_text(TAPPED.format(sink=str(sink)))

    def ended(number: int, change: Future[int], before: int, after: int) -> None:
        timed.wait_on_trial(number, change)
        assert direct.change_state(timed.app).at_ms == (after - 1) * 1_000
        feed(before, after)
        assert change.result(LATE_S) == number
        feed(after + 250)
        wait_for(lambda: not direct.change_state(timed.app).both, "the old version to end", LATE_S)

    with connect(Config.load(None, {}, {"client.console": timed.cluster.console["entry"]})) as through:
        at = "1970-01-01T00:10:00"
        attached = begun(lambda: through.attach(timed.app, str(part), to="marked", at=at, timeout="15 min"))
        ended(3, attached, 599, 601)
    at = "1970-01-01T00:20:00"  # what comes from another fragment is known to be a minute ahead at most
    replaced = begun(lambda: direct.replace(timed.app, "tapped", str(part), at=at, timeout="15 min"))
    ended(4, replaced, 1_199, 1_201)
    line = ("remove", timed.app, "tapped", "--at", "1970-01-01T00:30:00", "--yes", "--timeout", "15 min")
    removed = begun(lambda: timed.cluster.command(*line, expect=0).returncode + 5)
    ended(5, removed, 1_799, 1_801)
    timed.wait_shown()
    tapped = dict(zip(timed.rows("tapped", "n"), timed.rows("tapped", "by"), strict=True))
    assert tapped == {601: 1, 851: 1, 1_199: 1, 1_201: 2, 1_451: 2, 1_799: 2}


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_a_restarted_application_has_the_newest_version_and_goes_back(shop: Shop) -> None:
    epoch, number = shop.status()[0].epoch, shop.next_version()
    runs = shop.expected[max(shop.expected)]
    shop.cluster.client.restart(shop.app)
    wait_for(lambda: shop.status()[0].epoch > epoch, "the restart", LATE_S)
    shop.attempts()
    shop.feed(runs)
    shop.wait_shown()
    back = begun(lambda: shop.cluster.client.roll_back(shop.app, 1, "15 min"))
    shop.wait_on_trial(number)
    shop.feed(1)
    assert back.result(LATE_S) == number
    shop.wait_shown()
    assert shop.outcomes()[-1] == "done"
