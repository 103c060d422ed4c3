"""An application whose state is in an object store changes in a cluster, and its worker is lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from moved import lose
from test_lost_machine import rows_in

from drivetrain.runtime.state.state_partitions import state_partitions
from object_store import S3Server
from whole_cluster import WholeCluster, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

KEYS = 4
FILE = """
from drivetrain import Application, KeyedTask, ValueState, sinks, sources
import marking

class Numbered(KeyedTask):
    key = "k"
    output = "n bigint, k bigint, version bigint, nth bigint"
    count = ValueState(int)

    def on_next(self, row):
        self.count.set((self.count.get() or 0) + 1)
        yield row.n, row.k, row.version, self.count.get()

app = Application("changed")
given = sources.json(app.setting("place") + "/in", schema="n bigint, k bigint", watch=True)
read = app.read(given, name="read")
marked = read.with_columns(version=marking.mark, step="marked")
marked.sink(sinks.parquet(app.setting("bucket") + "/each"), name="each")
marked.cut().process(Numbered, name="numbered").sink(
    sinks.parquet(app.setting("bucket") + "/numbered"), name="numbers"
)
"""
MARKING = """
def mark(n: int) -> int:
    return {version}
"""


@dataclass
class Changed:
    """The application, what it was given, and the naive model of what it has to show."""

    cluster: WholeCluster
    place: Path
    bucket: Path
    fed: Counter[int] = field(default_factory=Counter)
    each: list[tuple[int, int]] = field(default_factory=list)
    numbered: list[tuple[int, int, int, int]] = field(default_factory=list)

    def write(self, version: int) -> str:
        """The file of a version, with a module beside it; returns its name."""
        folder = self.place / f"v{version}"
        folder.mkdir(parents=True)
        (folder / "changed.py").write_text(FILE)
        (folder / "marking.py").write_text(MARKING.format(version=version))
        return str(folder / "changed.py")

    def feed(self, version: int) -> None:
        """Give it messages, all of which must go through a version, and wait until they are shown."""
        self.give(version)
        self.wait_shown()

    def give(self, version: int) -> None:
        """Give it messages, all of which must go through a version."""
        numbers = range(len(self.each), len(self.each) + 20)
        for n in numbers:
            self.fed[n % KEYS] += 1
            self.each.append((n, version))
            self.numbered.append((n, n % KEYS, version, self.fed[n % KEYS]))
        aside = self.place / "aside.jsonl"
        aside.write_text("".join(json.dumps({"n": n, "k": n % KEYS}) + "\n" for n in numbers))
        aside.rename(self.place / "in" / f"{len(self.each)}.jsonl")

    def wait_shown(self) -> None:
        """Wait until everything is shown; it is what the model says."""
        wait_for(lambda: len(self._shown("numbered")) >= len(self.each), "what it was given", 600)
        wait_for(lambda: len(self._shown("each")) >= len(self.each), "what it was given", 600)
        self.require_exact()

    def is_all_saved(self) -> bool:
        """Write a savepoint, which shows what has been processed; returns whether that is everything."""
        self.cluster.command("savepoint", "changed", expect=0)
        return all(len(self._shown(sink)) >= len(self.each) for sink in ("numbered", "each"))

    def _shown(self, sink: str) -> list[dict[str, int]]:
        return rows_in(self.bucket / sink) if (self.bucket / sink).is_dir() else []

    def require_exact(self) -> None:
        assert sorted((row["n"], row["version"]) for row in self._shown("each")) == self.each
        rows = [(row["n"], row["k"], row["version"], row["nth"]) for row in self._shown("numbered")]
        assert sorted(rows) == self.numbered

    def command(self, *arguments: str) -> str:
        """A command that succeeds; returns what it printed."""
        command, *rest = arguments
        ended = self.cluster.command(command, "changed", *rest, "--yes", "--timeout", "10 min", expect=0)
        return ended.stdout + ended.stderr

    def wait_in_force(self, number: int) -> None:
        def is_settled() -> bool:
            return self.cluster.client.application("changed").graph_version == number

        wait_for(is_settled, f"version {number}", 600)


@pytest.mark.nightly("test_moved_states simulates it; a real worker is lost here")
def test_changes_are_continued_on_another_worker_though_no_checkpoint_has_followed_them(
    s3: S3Server, tmp_path: Path
) -> None:
    bucket, place = s3.bucket("changed"), tmp_path / "fed"
    (place / "in").mkdir(parents=True)
    settings = s3.sets() | {
        "state.dir": "s3://changed/states",
        "checkpoint.interval": "500 ms",
        "app.executors": "2",
        "place": str(place),
        "bucket": "s3://changed",
    }
    given = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]
    with whole_cluster(tmp_path, masters=1, workers=3) as cluster:
        changed = Changed(cluster, place, bucket)
        submitted = cluster.submit(changed.write(1), "--detached", *given)
        assert submitted.returncode == 0, submitted.stderr
        cluster.wait_running("changed")
        changed.feed(1)
        worker = cluster.worker_of("changed")

        cluster.command("update", "changed", "--set", "run.trial-wait=1 s", expect=0)
        changed.command("scale", "numbered", "--partitions", "3")
        changed.command("update", changed.write(2))  # its trial ends without a message
        lose(cluster, worker)

        cluster.wait_running("changed", epoch=2)
        assert cluster.worker_of("changed") != worker
        changed.wait_in_force(2)
        changed.feed(2)
        (state,) = cluster.directory.glob("boxes/*/states/*/changed-*")
        assert "run.trial-wait" in (state / "changed-configuration.json").read_text()
        wait_for(lambda: state_partitions(state / "fragments/numbered/checkpoint") == 3, "the scaling", 600)
        changed.feed(2)
        changed.command("rollback", "1")
        changed.feed(1)
        changed.wait_in_force(3)
        saved = cluster.command("savepoint", "changed", expect=0).stdout.strip()
        cluster.command("kill", "changed", "--wait", expect=0)

        other = settings | {"state.dir": "s3://changed/more", "bucket": "s3://changed/more"}
        other |= {"checkpoint.interval": "1 h"}
        given = [text for key, value in other.items() for text in ("--set", f"{key}={value}")]
        submitted = cluster.submit(str(place / "v1" / "changed.py"), "--detached", "--from", saved, *given)
        assert submitted.returncode == 0, submitted.stderr
        cluster.wait_running("changed")
        lose(cluster, cluster.worker_of("changed"))  # before any checkpoint
        cluster.wait_running("changed", epoch=2)
        before, changed.bucket = len(changed.each), bucket / "more"
        changed.give(1)
        del changed.each[:before], changed.numbered[:before]
        wait_for(changed.is_all_saved, "a savepoint with what it was given", 600)
        changed.wait_shown()
        cluster.command("kill", "changed", expect=0)
