"""An application of a cluster changes while it processes; whatever dies meanwhile, every message counts once.

One application, whose two fragments run in two executors, runs through all of it. Its output says which
version each message went through; the test feeds messages in steps, so it knows which version that must be.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.cluster.messages.following import JobStatus
from whole_cluster import SLOW_S, WholeCluster, drivetrain, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(900)

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

    def write(self, version: int, body: str | None = None) -> str:
        """The file of a version, with a module beside it; returns its name."""
        folder = self.place / f"v{version}"
        folder.mkdir(exist_ok=True)
        (folder / "shop.py").write_text(SHOP.format(version=version))
        (folder / "marking.py").write_text(MARKING.format(body=body or f"return {version}"))
        return str(folder / "shop.py")

    def feed(self, version: int, count: int = 4) -> None:
        """Give it messages, all of which must go through a version."""
        numbers = range(len(self.expected), len(self.expected) + count)
        self.expected |= dict.fromkeys(numbers, version)
        aside = self.place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        aside.rename(self.place / "in" / f"{len(self.expected)}.jsonl")

    def shown(self) -> list[tuple[int, int]]:
        """Each message that was written, with the version that marked it."""
        rows = [
            json.loads(line)
            for file in (self.place / "out").glob("*.json")
            for line in file.read_text().splitlines()
        ]
        return sorted((row["n"], row["version"]) for row in rows)

    def wait_shown(self) -> None:
        """Wait until everything is written, and compare it."""
        wait_for(lambda: len(self.shown()) >= len(self.expected), "all messages to be written")
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

        return wait_for(look, "all fragments to run")

    def update(self, file: str, *arguments: str) -> subprocess.Popen[str]:
        """`drivetrain update`, going on."""
        return subprocess.Popen(
            [*drivetrain(), "update", self.app, file, "--json", "--timeout", "3 min", *arguments],
            cwd=self.cluster.directory,
            env=self.cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_on_trial(self, number: int) -> None:
        """Wait until a version is in force, and on trial."""

        def look() -> bool:
            state = self.cluster.client.change_state(self.app)
            return (state.version, state.stage.value) == (number, "on trial")

        wait_for(look, f"version {number} to be on trial")

    def versions(self) -> list[dict[str, object]]:
        told = self.cluster.command("versions", self.app, "--json", expect=0).stdout
        versions: list[dict[str, object]] = json.loads(told)["versions"]
        return versions


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    place = tmp_path_factory.mktemp("changing")
    (place / "in").mkdir()
    with whole_cluster(place, masters=1, workers=2, console=True) as cluster:
        shop = Shop(cluster, place)
        accepted = cluster.submit(
            *(shop.write(1), "--detached", "--json", "--set", "app.executors=2", "--set", f"place={place}"),
            *("--set", f"state.dir={place / 'state'}"),
        )
        assert accepted.returncode == 0, accepted.stderr
        shop.app = json.loads(accepted.stdout)["app_id"]
        shop.feed(1)
        shop.wait_shown()
        yield shop


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, object]]:
    """The exit code of a command, and what it printed."""
    out, err = process.communicate(timeout=SLOW_S)
    return process.returncode, json.loads(out) if out else {"stderr": err}


def test_two_fragments_in_two_executors_go_over_to_other_code_while_their_queries_go_on(shop: Shop) -> None:
    before = shop.attempts()
    assert len({executor for _, executor in before.values()}) == 2
    file = shop.write(2)
    compared = shop.cluster.command("plan", file, "--against", shop.app, "--set", f"place={shop.place}")
    assert "swapped" in compared.stdout, compared.stderr
    update = shop.update(file)
    shop.wait_on_trial(2)
    refused = shop.cluster.command("update", shop.app, shop.write(9), "--yes")
    assert refused.returncode == 2
    assert "another change of the application is under way" in refused.stderr
    shop.feed(2)
    code, told = ended(update)
    assert code == 0, told
    assert told["change"]["outcome"] == "done"  # type: ignore[index]  # it is a JSON object
    shop.feed(2)
    shop.wait_shown()
    assert shop.attempts() == before
    assert [version["outcome"] for version in shop.versions()] == [None, "done"]


def test_a_version_that_fails_goes_back_by_itself_and_says_where(shop: Shop) -> None:
    before = shop.attempts()
    update = shop.update(shop.write(3, FAILS))
    shop.wait_on_trial(3)
    shop.feed(2)
    code, told = ended(update)
    assert code == 3, told
    change = told["change"]
    assert isinstance(change, dict)
    assert change["outcome"] == "rolled back"
    assert change["fragment"] == "marked"
    assert "ZeroDivisionError" in change["why"]
    assert "1 // (n - n)" in change["why"]
    shop.wait_shown()
    assert shop.attempts() == before, "no fragment was started again"


def test_what_does_not_load_or_compile_changes_nothing(shop: Shop) -> None:
    broken = shop.write(4)
    Path(broken).write_text(Path(broken).read_text() + "\nraise KeyError('in the file')\n")
    result = shop.cluster.command("update", shop.app, broken, "--yes")
    assert result.returncode != 0
    assert "in the file" in result.stderr
    text = SHOP.format(version=4)
    Path(broken).write_text(text.replace("with_columns(", 'filter("nothing > 1").with_columns('))
    result = shop.cluster.command("update", shop.app, broken, "--yes")
    assert result.returncode != 0
    assert "nothing" in result.stderr
    assert len(shop.versions()) == 3


def test_the_application_master_is_killed_during_a_trial(shop: Shop) -> None:
    update = shop.update(shop.write(5))
    shop.wait_on_trial(4)
    view, status = shop.status()
    assert status is not None
    [app_master] = shop.cluster.processes("drivetrain.cluster.app_master")
    os.kill(app_master, signal.SIGKILL)
    wait_for(lambda: shop.status()[0].epoch > view.epoch, "another application master")
    shop.wait_on_trial(4)
    shop.feed(5)
    code, told = ended(update)
    assert code == 0, told
    shop.wait_shown()
    assert shop.versions()[-1]["outcome"] == "done"


def test_an_executor_is_killed_during_a_trial(shop: Shop) -> None:
    update = shop.update(shop.write(6))
    shop.wait_on_trial(5)
    _, status = shop.status()
    assert status is not None
    pid = status.executors[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    shop.feed(6)
    code, told = ended(update)
    assert code == 0, told
    shop.wait_shown()


def test_a_restarted_application_has_the_newest_version(shop: Shop) -> None:
    epoch = shop.status()[0].epoch
    shop.cluster.command("restart", shop.app, expect=0)
    wait_for(lambda: shop.status()[0].epoch > epoch, "the restart")
    shop.feed(6)
    shop.wait_shown()
    assert shop.versions()[-1]["in_force"]


def test_it_goes_back_by_the_command_and_by_the_console(shop: Shop) -> None:
    shop.attempts()
    command = subprocess.Popen(
        [*drivetrain(), "rollback", shop.app, "1", "--json"],
        cwd=shop.cluster.directory,
        env=shop.cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shop.wait_on_trial(6)
    shop.feed(1)
    code, told = ended(command)
    assert code == 0, told
    shop.wait_shown()

    console = shop.cluster.console
    assert console is not None
    headers = {"Authorization": f"Bearer {console['token']}"}
    http = httpx.Client(base_url=console["address"], headers=headers, timeout=SLOW_S, trust_env=False)
    begun = http.post(f"/api/v1/applications/{shop.app}/versions/2/rollback")
    assert begun.status_code == 202, begun.text
    shop.wait_on_trial(7)
    shop.feed(2)

    def over() -> dict[str, object] | None:
        operation = http.get(begun.headers["Location"]).json()
        return None if operation["state"] == "running" else operation

    operation = wait_for(over, "the end of the operation")
    assert (operation["state"], operation["result"]) == ("succeeded", {"version": "7"}), operation
    shop.wait_shown()
