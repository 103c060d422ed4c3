"""A whole cluster with real Spark: everything that can die is killed, and the output is an undisturbed run's.

One application runs through all of it, held by gates; see `gated_application`.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drivetrain.cluster.messages.applications import ApplicationState
from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

ROWS, STAGE = 5_000, 500
PLANTED = "PLANTED_FOR_A_TEST"
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    directory = tmp_path_factory.mktemp("whole")
    shutil.copy(HERE / "gated_application.py", directory / "gated.py")
    shutil.copy(EXAMPLES / "wordcount.py", directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PLANTED, "planted-in-the-environment-8f3")
        with whole_cluster(directory) as made:
            yield made


def table(directory: Path) -> list[tuple[str, ...]]:
    """All rows of the CSV files, whatever is there twice included."""
    rows: list[tuple[str, ...]] = []
    for file in directory.glob("*.csv"):
        with file.open(newline="") as lines:
            reader = csv.reader(lines)
            next(reader)
            rows += map(tuple, reader)
    return sorted(rows)


def require_whole(output: Path, rows: int) -> None:
    """The gated application wrote what an undisturbed run writes: nothing twice, nothing missing."""
    for name, minutes in (("hourly", 60), ("daily", 24 * 60)):
        expected = Counter((f"w{number % 3}", number // minutes) for number in range(rows))
        found = [(word, int(count)) for word, _, _, count in table(output / name)]
        assert Counter(found) == Counter((word, count) for (word, _), count in expected.items()), name


class Gates:
    """Opens one stage after the other."""

    def __init__(self, directory: Path) -> None:
        for folder in ("gates", "passed"):
            (directory / folder).mkdir(parents=True)
        self.directory = directory
        self.next = 0

    def open(self) -> int:
        stage = self.next
        self.next += 1
        (self.directory / "gates" / str(stage)).touch()
        return stage

    def pass_one(self) -> None:
        """Open a stage and see messages go through."""
        stage = self.open()
        wait_for(
            lambda: (self.directory / "passed" / str(stage)).exists(), f"messages of stage {stage} to pass"
        )


REPLAYED = """
from drivetrain import Application, sinks, sources
app = Application("replayed")
source = sources.json(app.setting("input"), schema="ts timestamp, n bigint", event_time="ts",
                       max_disorder="1 d", watch=True)
app.read(source).filter("n >= 0").sink(sinks.csv(app.setting("output")), name="out")
"""


@pytest.mark.nightly("test_master_duties and test_app_master_under_faults; test_kafka_replay")
def test_a_running_application_is_replayed_killed_and_restarted_and_its_name_is_free_again(
    cluster: WholeCluster,
) -> None:
    directory, moments = cluster.directory, cluster.directory / "moments"
    (directory / "replayed.py").write_text(REPLAYED)
    moments.mkdir()
    minutes = [(n * 37) % 60 for n in range(60)]  # in no order
    lines = [json.dumps({"ts": f"2013-03-01T00:{minute:02}:00Z", "n": minute}) for minute in minutes]
    (moments / "a.jsonl").write_text("\n".join(lines))

    def published(life: str) -> list[int]:
        files = [f for f in (directory / "out").glob("*.csv") if ("life2" in f.name) == (life == "2")]
        return sorted(int(row["n"]) for f in files for row in csv.DictReader(f.open(newline="")))

    given = ("--set", f"input={moments}", "--set", f"output={directory / 'out'}")
    accepted = cluster.submit("replayed.py", "--detached", "--json", *given)
    assert accepted.returncode == 0, accepted.stderr
    told = json.loads(accepted.stdout)
    app = told["app_id"]
    assert told == {"outcome": "accepted", "app_id": "replayed-1"}
    taken = cluster.submit("replayed.py", "--detached", *given)
    assert taken.returncode == 2
    assert "--name" in taken.stderr
    wait_for(lambda: len(published("1")) == 60, "the first life's output")
    newest_ms = 1_362_099_540_000 - 24 * 3_600_000  # what is up to a day late may still come
    assert cluster.client.wait_clock("replayed", "2013-02-28T00:50:00Z", "5 min") == newest_ms
    cluster.command("replay", app, "--from", "2013-03-01 00:40", "--yes", expect=0)
    wait_for(lambda: len(published("2")) == 20, "the second life's output")
    assert published("2") == list(range(40, 60))
    assert published("1") == list(range(60))

    def shown() -> str | None:
        text = cluster.command("show", app, expect=0).stdout
        return text if "40 older messages" in text else None

    assert "life 2, replaying from 2013-03-01 00:40:00 UTC" in wait_for(shown, "what was skipped to be shown")
    view, status = cluster.status(app)
    assert view.spec.replay_from_ms is None, "it was obeyed, and is not again"
    assert status is not None
    assert (status.life, status.replay_from_ms) == (2, 1_362_098_400_000)
    kill(cluster, app)
    assert app in cluster.command("restart", app, expect=0).stdout  # what was killed can be, too
    assert cluster.client.application(app).app_id == app
    (moments / "b.jsonl").write_text(json.dumps({"ts": "2013-03-01T01:10:00Z", "n": 70}))
    wait_for(lambda: len(published("2")) > 20, "what it reads after its restart")
    assert published("2") == [*range(40, 60), 70], "it went on where it was"
    kill(cluster, app)

    shell = (str(EXAMPLES / "distributed_shell.py"), "--set", "command=echo $((40 + 2))")
    ended = cluster.submit(*shell, "--name", "replayed")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["worker-1: 42", "worker-2: 42"]
    assert cluster.client.application("replayed").app_id != app
    wait_for(lambda: not cluster.processes(EXECUTOR) + cluster.processes(APP_MASTER), "its processes to end")


def kill(cluster: WholeCluster, app: str) -> None:
    assert cluster.command("kill", app, "--wait", expect=0).stdout == f"{app} is killed\n"
    assert not cluster.processes(EXECUTOR) + cluster.processes(APP_MASTER)
    assert cluster.client.application(app).state is ApplicationState.KILLED


@pytest.mark.nightly("test_changes_in_a_cluster kills one process of each kind; simulations kill everything")
def test_whatever_dies_the_application_goes_on_and_its_output_is_whole(cluster: WholeCluster) -> None:
    """An application master, its executor and its worker, and the masters, of which one also freezes."""
    place = cluster.directory / "held"
    gates = Gates(place)
    attached = cluster.attached(
        "gated.py",
        *("--set", f"rows={ROWS}", "--set", "output=out", "--set", f"place={place}"),
        *("--set", "raises_at=1", "--set", f"run.max-batch-rows={STAGE}", "--set", "restart.delay=100 ms"),
    )
    try:
        app_id = wait_for(
            lambda: next((v.app_id for v in cluster.client.applications() if v.name == "gated"), None),
            "the application",
        )
        gates.pass_one()
        gates.pass_one()  # in which a function raises, on the first attempt only
        assert (place / "raised").exists()
        kill_an_executor(cluster, app_id, gates)
        kill_the_application_master(cluster, app_id, gates)
        kill_its_worker(cluster, app_id, gates)
        kill_the_leader(cluster, app_id, gates)
        freeze_the_leader(cluster, app_id, gates)
        kill_two_of_three_masters(cluster, app_id, gates)
        kill_all_masters(cluster, app_id, gates)
        while gates.next * STAGE < ROWS:
            gates.open()
        output, _ = attached.communicate(timeout=180)
        assert attached.returncode == 0, cluster.said()
    finally:
        attached.kill()
        attached.wait()
    assert f"{app_id} finished" in output
    view, status = cluster.status(app_id)
    assert view.state is ApplicationState.SUCCEEDED
    assert status is not None
    require_whole(cluster.directory / "out", ROWS)
    wait_for(lambda: not cluster.processes(EXECUTOR) + cluster.processes(APP_MASTER), "its processes to end")
    assert "let_through" in cluster.command("show", "gated", expect=0).stdout


def kill_an_executor(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    epoch, pid = cluster.wait_running(app_id)
    signal_to(pid)
    gates.open()
    assert cluster.wait_running(app_id, other_than=pid)[0] == epoch, "the application master is the same"
    gates.pass_one()


def kill_the_application_master(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    epoch, executor = cluster.wait_running(app_id)
    before = cluster.client.application(app_id)
    (app_master,) = cluster.processes(APP_MASTER)
    signal_to(app_master)
    gates.open()
    wait_for(lambda: told_epoch(cluster, app_id) == epoch + 1, "another application master")
    wait_for(lambda: executor not in cluster.processes(EXECUTOR), "its executors to stop themselves")
    after = cluster.client.application(app_id)
    assert (after.app_id, after.submitted_ms, after.graph_version) == (
        app_id,
        before.submitted_ms,
        before.graph_version,
    )
    assert (after.clock_ms or 0) >= (before.clock_ms or 0)
    wait_for(lambda: "has taken over" in cluster.said(), "who is attached to hear of it")


def kill_its_worker(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    """While the application master, which is new, has an executor started."""
    epoch = told_epoch(cluster, app_id)
    assert epoch is not None
    worker = cluster.worker_of(app_id)
    launched = cluster.processes(APP_MASTER)
    cluster.kill(worker)
    wait_for(lambda: not set(launched) & set(cluster.processes(APP_MASTER)), "what it had launched to end")
    cluster.restart(worker)
    assert cluster.wait_running(app_id, epoch=epoch + 1)[0] == epoch + 1
    gates.pass_one()


def told_epoch(cluster: WholeCluster, app_id: str) -> int | None:
    """The epoch of the application master that tells the application's state."""
    view, status = cluster.status(app_id)
    assert not view.state.is_over, (view.why, cluster.said())
    return None if status is None else status.epoch


def kill_the_leader(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    running = cluster.wait_running(app_id)
    leader = cluster.wait_leader()
    cluster.kill(leader)
    cluster.wait_leader(other_than=leader)
    cluster.restart(leader)
    assert cluster.wait_running(app_id) == running, "nothing of the application was started again"


def freeze_the_leader(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    """A leader that slept through its lease must not act as one when it wakes."""
    running = cluster.wait_running(app_id)
    frozen = cluster.wait_leader()
    cluster.freeze(frozen)
    try:
        successor = cluster.wait_leader(other_than=frozen)
    finally:
        cluster.thaw(frozen)
    address = next(place for place, name in cluster.places.items() if name == frozen)
    for _ in range(20):
        views = {view.address: view for view in cluster.client.masters()}
        leading = [view.address for view in views.values() if view.leads]
        assert address not in leading
        time.sleep(0.05)
    assert cluster.wait_leader() == successor
    assert cluster.wait_running(app_id) == running


def kill_two_of_three_masters(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    running = cluster.wait_running(app_id)
    gone = [f"master-{number}" for number in (1, 2)]
    for name in gone:
        cluster.kill(name)
    given = ("--detached", "--name", "late", "--set", "client.timeout=3 s")
    refused = cluster.submit("gated.py", *given)
    assert refused.returncode == 4, refused.stderr
    assert "2 of 3 masters" in refused.stderr
    gates.pass_one()  # the application does not mind
    cluster.restart(gone[0])
    cluster.wait_leader()
    assert cluster.wait_running(app_id) == running
    assert "no master leads right now" in cluster.said()
    assert all(view.name != "late" for view in cluster.client.applications())
    cluster.restart(gone[1])


def kill_all_masters(cluster: WholeCluster, app_id: str, gates: Gates) -> None:
    running = cluster.wait_running(app_id)
    before = cluster.client.applications()
    names = [name for name in cluster.pids if name.startswith("master")]
    for name in names:
        cluster.kill(name)
    gates.pass_one()
    for name in names:
        cluster.restart(name)
    cluster.wait_leader()
    after = cluster.client.applications()
    assert [(v.app_id, v.epoch, v.code) for v in after] == [(v.app_id, v.epoch, v.code) for v in before]
    assert cluster.wait_running(app_id) == running


def signal_to(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


SECRETIVE = """
from drivetrain import Application, sinks, sources
app = Application("secretive")
word = app.setting("password", secret=True)
key = app.setting("key", secret=True)

def checked(value):
    if value == "bad":
        raise ValueError(f"{word.value()} and {key.value()} are not to be told")
    if value == "worse":
        raise ValueError(f"{key.value()} is not to be told")
    return f"{value} {len(word.value())} {len(key.value())}"

lines = app.read(sources.text(app.setting("input"), watch=True))
good = lines.filter(lambda value: value != "worse").map(checked, returns=str, on_error="dead_letter")
good.sink(sinks.json(app.setting("output")))
lines.filter(lambda value: value == "worse").map(checked, returns=str).sink(sinks.none())
"""


@pytest.mark.nightly("test_secrets, embedded")
def test_a_secret_is_nowhere_but_where_it_was_put(cluster: WholeCluster, tmp_path: Path) -> None:
    """Not in any file of the cluster, answer, command line, log or savepoint, while it is used and fails."""
    directory = cluster.directory
    word, key = os.environ[PLANTED], "planted-in-a-file-51c"
    (tmp_path / "key").write_text(f"{key}\n")
    (directory / "secretive.py").write_text(SECRETIVE)
    (directory / "said").mkdir()
    (directory / "said" / "a.txt").write_text("good\nbad\n")
    login = 'org.x.PlainLoginModule required username="u" password="%s";'
    told: list[str] = []

    def submit(*given: str) -> subprocess.CompletedProcess[str]:
        ended = cluster.submit("secretive.py", "--detached", "--set", "input=said", *given)
        told.append(ended.stdout + ended.stderr)
        return ended

    given = [
        "--set",
        "restart.strategy=none",
        "--set",
        "output=secretive",
        "--set",
        f"key=${{file:{tmp_path}/key}}",
    ]
    refused = submit(*given, "--set", "password=written-out")
    assert refused.returncode == 2
    assert "${ITS_NAME}" in refused.stderr
    given += ["--set", f"password=${{{PLANTED}}}"]
    for option in ("kafka.options.sasl.jaas.config=" + login % word, f"spark.conf.spark.some.secret={word}"):
        refused = submit(*given, "--set", option)
        assert refused.returncode == 2
        assert "would be sent to other machines" in refused.stderr
    given += ["--set", "kafka.options.sasl.jaas.config=" + login % f"${{{PLANTED}}}"]
    given += ["--set", "input=said"]
    last = ("--set", f"spark.conf.spark.hadoop.some.secret.key=${{{PLANTED}}}")
    attached = cluster.attached("secretive.py", *given, *last)

    def published() -> list[str]:
        lines = [file.read_text() for file in (directory / "secretive").glob("*.json")]
        return [json.loads(line)["value"] for text in lines for line in text.splitlines()]

    wait_for(published, "what it publishes")
    app = cluster.client.application("secretive").app_id
    assert published() == [f"good {len(word)} {len(key)}"]
    look = [["show", app, "--json"], ["show", app], ["apps", "--json"], ["savepoint", app]]
    look += [["plan", "secretive.py", *given]]
    told += [(ended := cluster.command(*words, expect=0)).stdout + ended.stderr for words in look]
    told += [" ".join(psutil.Process(pid).cmdline()) for pid in cluster.processes()]
    found = _files_with((word, key), directory)
    (directory / "said" / "b.txt").write_text("worse\n")
    assert cluster.client.wait(app, "10 min").state is ApplicationState.FAILED
    output, _ = attached.communicate(timeout=180)
    assert attached.returncode == 3, cluster.said()
    told += [output, cluster.said()]
    assert "in checked" in cluster.said(), "its traceback is the user's"
    assert "ValueError: *** is not to be told" in cluster.command("show", app, expect=0).stdout
    told += [(ended := cluster.command(*words)).stdout for words in (["show", app], ["logs", app])]
    assert "*** is not to be told" in "".join(told)
    found += _files_with((word, key), directory)
    assert [text for text in told if word in text or key in text] == []
    assert found == []
    wait_for(lambda: not cluster.processes(EXECUTOR) + cluster.processes(APP_MASTER), "its processes to end")


def _files_with(secrets: tuple[str, ...], directory: Path) -> list[str]:
    """The files below a directory that hold a secret; those that are deleted meanwhile do not count."""
    found, seen = [], set()
    for path in directory.rglob("*"):
        try:
            content = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
        seen.add(path.name)
        found += [str(path) for secret in secrets if secret.encode() in content]
    assert {"registry.log", "application.json"} <= seen
    return found
