"""Configuration keys that change while an application runs, on real Spark."""

from __future__ import annotations

import json

import pytest
from harness import Harness
from shop import Feed, marks, shop, wait_until
from typer.testing import CliRunner

from drivetrain import start
from drivetrain.cli.main import app as cli
from drivetrain.core.job.run_progress import NoticeGiven, ProgressEvent, QuietListener
from drivetrain.errors import ConfigError

TIMEOUT = "5 min"


class Notices(QuietListener):
    """The notices of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, NoticeGiven):
            self.texts.append(event.text)


def test_limits_of_batches_and_the_interval_of_checkpoints_change_and_outlast_the_run(drive: Harness) -> None:
    feed, state = Feed(drive.directory), drive.directory / "state"
    feed.put(6)
    first, second = Notices(), Notices()
    config = drive.config(checkpoint__mode="on")
    with start(shop(drive.directory, 1), config, first) as running:
        wait_until(lambda: len(marks(drive.directory)) == 6, lambda: running.is_running)
        line = ["update", "shop", "--state-dir", str(state), "--set", "run.max-batch-bytes=1 KiB"]
        said = CliRunner().invoke(cli, [*line, "--set", "checkpoint.interval=200 ms", "--json"])
        assert said.exit_code == 0, said.output
        changed = {
            each["name"]: (each["before"], each["after"]) for each in json.loads(said.stdout)["changed"]
        }
        assert changed == {
            "run.max-batch-bytes": ("512 MiB", "1 KiB"),
            "checkpoint.interval": ("1 s", "200 ms"),
        }
        wait_until(lambda: list(state.glob("*/fragments/read/batch-share")), lambda: running.is_running)
        batches = last_batch(drive)
        feed.put(90)  # about 4 KiB
        wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        assert last_batch(drive) >= batches + 4
        with pytest.raises(ConfigError, match="cannot change while the application runs"):
            running.configure({"run.delivery": "at most once"})
        assert running.configure({}, restore=["checkpoint.interval"]) == {"checkpoint.interval": "1 s"}
        running.stop()
        running.wait(TIMEOUT)
    assert "run.max-batch-bytes is 1 KiB from now on; it was 512 MiB" in first.texts
    with start(shop(drive.directory, 1), config, second) as running:
        wait_until(lambda: second.texts, lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert any(text.startswith("run.max-batch-bytes is 1 KiB: it was changed") for text in second.texts)
    assert not any("checkpoint.interval" in text for text in second.texts)


def last_batch(drive: Harness) -> int:
    """The newest committed batch of the fragment that reads."""
    commits = (drive.directory / "state").glob("*/fragments/read/checkpoint/commits/[0-9]*")
    return max(int(commit.name) for commit in commits)
