"""An application that reads MQTT, killed between receiving messages and processing them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from killed_runs import run_killed_at
from typer.testing import CliRunner

from drivetrain import start
from drivetrain.cli.main import app as cli
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint
from mosquitto_broker import MosquittoBroker

IN_FLIGHT = 20
EXAMPLE = Path(__file__).parents[3] / "examples" / "mqtt_meters.py"


def found_in(out: Path) -> list[tuple[str, int]]:
    rows = [json.loads(line) for file in sorted(out.glob("part-*")) for line in file.read_text().splitlines()]
    return [(row["meter"], int(row["watts"])) for row in rows]


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(150)
def test_what_was_received_counts_once_and_what_was_not_comes_again(
    mosquitto: MosquittoBroker, tmp_path: Path
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

    with run_killed_at(EXAMPLE, tmp_path, CrashPoint.BEFORE_SINK, *options, times=3) as process:
        while not found_in(out):
            assert process.poll() is None, (tmp_path / "output").read_text()
            publish(3)
            time.sleep(0.2)
        while process.poll() is None:
            publish(3)
            time.sleep(0.1)
    publish(300)
    first = min(n for _, n in found_in(out))  # before the first subscription nothing is kept
    sets = {"spark.master": "local[2]", "state.dir": str(tmp_path / "state")}
    with start(load_application(str(EXAMPLE), chosen), Config.load(None, {}, sets)) as running:
        publish(30)
        while not set(found_in(out)) >= set(sent[first:]):
            assert running.is_running
            time.sleep(0.1)
        running.stop()
    assert running.wait().outcome is RunOutcome.STOPPED
    count = Counter(found_in(out))
    assert set(count) == set(sent[first:])
    assert max(count.values()) <= 2
