"""The state of a fragment of a real cluster is divided again, though its executor is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from drivetrain.cluster.client import connect
from drivetrain.config import Config
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.errors import UserError
from drivetrain.runtime.state.state_partitions import state_partitions
from whole_cluster import WholeCluster, drivetrain, wait_for, whole_cluster

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly("simulated by test_attempts_under_faults")]

LATE_S = 900.0
NUMBERED = """
from drivetrain import Application, KeyedTask, ValueState, sinks, sources

class Numbered(KeyedTask):
    key = "k"
    output = "k bigint, nth bigint"
    count = ValueState(int)

    def on_next(self, row):
        self.count.set((self.count.get() or 0) + 1)
        yield row.k, self.count.get()

app = Application("numbered")
place = app.setting("place")
read = app.read(sources.json(place + "/in", schema="k bigint, n bigint", watch=True), name="read")
read.process(Numbered, name="numbered").sink(sinks.json(place + "/out"), name="out")
"""


@dataclass
class Numbers:
    """The application, and how many messages of each of its four keys it was given."""

    cluster: WholeCluster
    place: Path
    app: str
    fed: int = 0

    def feed(self) -> None:
        self.fed += 5
        aside = self.place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"k": k, "n": 1}) + "\n" for k in range(4) for _ in range(5)))
        aside.rename(self.place / "in" / f"{self.fed}.jsonl")

    def wait_exact(self) -> None:
        """Wait until every message is numbered, each once, without a gap."""
        wanted = Counter((k, n) for k in range(4) for n in range(1, self.fed + 1))

        def shown() -> Counter[tuple[int, int]]:
            files = sorted((self.place / "out").glob("*.json"))
            rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
            return Counter((row["k"], row["nth"]) for row in rows)

        wait_for(lambda: shown().total() >= wanted.total(), "all messages to be written", LATE_S)
        assert shown() == wanted

    @property
    def partitions(self) -> int | None:
        [own] = (self.place / "state").glob("*/fragments/numbered")
        return state_partitions(own / "checkpoint")

    def kill_executors(self) -> None:
        _, status = self.cluster.status(self.app)
        assert status is not None
        for executor in status.executors:
            if executor.pid is not None:
                os.kill(executor.pid, signal.SIGKILL)

    def ended(self, begun: ScalingState) -> ScalingState:
        return self.cluster.client.wait_scaled(self.app, begun, "15 min")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Numbers]:
    place = tmp_path_factory.mktemp("scaling")
    (place / "in").mkdir()
    (place / "numbered.py").write_text(NUMBERED)
    with whole_cluster(place, masters=1, workers=2, console=True) as cluster:
        accepted = cluster.submit(
            *(str(place / "numbered.py"), "--detached", "--json", "--set", f"place={place}"),
            *("--set", f"state.dir={place / 'state'}", "--set", "spark.shuffle-partitions=2"),
        )
        assert accepted.returncode == 0, accepted.stderr
        numbers = Numbers(cluster, place, json.loads(accepted.stdout)["app_id"])
        numbers.feed()
        numbers.wait_exact()
        yield numbers


def test_a_fragment_is_scaled_by_the_command_and_listed(numbers: Numbers) -> None:
    def told(*line: str) -> str:
        done = subprocess.run(
            [*drivetrain(), *line],
            cwd=numbers.cluster.directory,
            env=numbers.cluster.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    line = ("scale", numbers.app, "numbered", "--partitions", "3", "--timeout", "15 min", "--yes")
    assert "in 2 partitions, is divided into 3" in told(*line, "--dry-run")
    assert numbers.partitions == 2, "a dry run changes nothing"
    assert "has 3 state partitions, before 2" in told(*line)
    assert numbers.partitions == 3
    with pytest.raises(UserError, match="already"):
        numbers.cluster.client.plan_scaling(numbers.app, "numbered", 3)
    with pytest.raises(UserError, match="no such fragment"):
        numbers.cluster.client.scale(numbers.app, "nothing", 3)
    assert "has 3 state partitions, before 2" in told("versions", numbers.app)
    numbers.feed()
    numbers.wait_exact()


def test_a_fragment_is_scaled_through_the_console_as_through_the_masters(numbers: Numbers) -> None:
    assert numbers.cluster.console is not None
    entry, before = numbers.cluster.console["entry"], numbers.partitions
    with connect(Config.load(None, {}, {"client.console": entry})) as client:
        planned = client.plan_scaling(numbers.app, "numbered", 4)
        assert planned == numbers.cluster.client.plan_scaling(numbers.app, "numbered", 4)
        assert (planned.before, planned.after, numbers.partitions) == (before, 4, before)
        with pytest.raises(UserError, match="no such fragment"):
            client.scale(numbers.app, "nothing", 4)
        ended = client.scale(numbers.app, "numbered", 4, "15 min")
        assert (ended.before, ended.after, numbers.partitions) == (before, 4, 4)
        scalings = client.versions(numbers.app).scalings
        assert scalings == numbers.cluster.client.versions(numbers.app).scalings
        assert scalings[-1].of.after == 4
    line = ("scale", numbers.app, "numbered", "--console", entry, "--timeout", "15 min", "--yes")
    told = numbers.cluster.command(*line, "--partitions", "6", "--json", expect=0)
    assert json.loads(told.stdout)["scaling"]["after"] == numbers.partitions == 6
    refused = numbers.cluster.command(*line, "--partitions", "6")
    assert (refused.returncode, "already" in refused.stderr) == (2, True)
    numbers.feed()
    numbers.wait_exact()


def test_a_scaling_outlasts_the_executor_that_does_it(numbers: Numbers) -> None:
    numbers.feed()
    before = numbers.partitions
    begun = numbers.cluster.client.begin_scaling(numbers.app, "numbered", 5)
    numbers.kill_executors()
    ended = numbers.ended(begun)
    assert (ended.is_over, ended.why, ended.before, ended.after) == (True, None, before, 5)
    assert numbers.partitions == 5
    numbers.feed()
    numbers.wait_exact()
