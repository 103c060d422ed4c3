"""An application that reads MQTT, and dies between receiving messages and processing them."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from killed_runs import run_killed_at
from typer.testing import CliRunner

from drivetrain import start
from drivetrain.cli.main import app as cli
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint, armed
from mosquitto_broker import MosquittoBroker

Publish = Callable[[], None]
Dies = Callable[[list[str], dict[str, str], Path, Publish], None]
IN_FLIGHT = 20
EXAMPLE = Path(__file__).parents[3] / "examples" / "mqtt_meters.py"


def found_in(out: Path) -> list[tuple[str, int]]:
    rows = [json.loads(line) for file in sorted(out.glob("part-*")) for line in file.read_text().splitlines()]
    return [(row["meter"], int(row["watts"])) for row in rows]


def config_of(directory: Path) -> Config:
    return Config.load(None, {}, {"spark.master": "local[2]", "state.dir": str(directory / "state")})


def by_an_error(options: list[str], chosen: dict[str, str], directory: Path, publish: Publish) -> None:
    """Run it here until its third batch ends in an error, before the sink has it."""
    batches = itertools.count(1)

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.BEFORE_SINK and next(batches) == 3:
            raise RuntimeError("died")

    with armed(die):
        running = start(load_application(str(EXAMPLE), chosen), config_of(directory))
        while running.is_running:
            publish()
            time.sleep(0.1)
    with pytest.raises(Exception, match="died"):
        running.wait()


def by_sigkill(options: list[str], chosen: dict[str, str], directory: Path, publish: Publish) -> None:
    """Run it in a process that is killed there."""
    with run_killed_at(EXAMPLE, directory, CrashPoint.BEFORE_SINK, *options, times=3) as process:
        while process.poll() is None:
            publish()
            time.sleep(0.1)


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "dies",
    [by_an_error, pytest.param(by_sigkill, marks=pytest.mark.nightly("an error at the same point"))],
)
def test_what_was_received_counts_once_and_what_was_not_comes_again(
    mosquitto: MosquittoBroker,
    tmp_path: Path,
    dies: Callable[[list[str], dict[str, str], Path, Publish], None],
) -> None:
    out = tmp_path / "out"
    chosen = {"broker": mosquitto.url, "output": str(out), "in_flight": str(IN_FLIGHT)}
    options = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    planned = CliRunner().invoke(cli, ["plan", str(EXAMPLE), *options], env={"COLUMNS": "400"})
    assert "Mqtt" in planned.stdout
    assert "the broker sends again" in " ".join(planned.stdout.split())

    sent: list[tuple[str, int]] = []

    def publish(count: int) -> None:
        new = [(f"m{n % 3}", n) for n in range(len(sent), len(sent) + count)]
        for meter in ("m0", "m1", "m2"):
            mosquitto.publish(f"meters/{meter}/power", *(str(n) for one, n in new if one == meter))
        sent.extend(new)

    dies(options, chosen, tmp_path, lambda: publish(3))
    publish(300)
    first = min(n for _, n in found_in(out))  # before the first subscription nothing is kept
    with start(load_application(str(EXAMPLE), chosen), config_of(tmp_path)) as running:
        publish(30)
        while not set(found_in(out)) >= set(sent[first:]):
            assert running.is_running
            time.sleep(0.1)
        running.stop()
    assert running.wait().outcome is RunOutcome.STOPPED
    count = Counter(found_in(out))
    assert set(count) == set(sent[first:])
    assert max(count.values()) <= 2
