"""Kill it at any moment, start it again: readers of committed messages see each result once.

`DRIVETRAIN_SEED=n` draws other moments; with `DRIVETRAIN_SEEDS` (the nightly run) there are more of them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from broker import Broker
from topic_reading import ends, values

from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.segments import write_segment
from nightly_run import is_nightly

SEED = int(os.environ.get("DRIVETRAIN_SEED", "7"))
NIGHTLY = is_nightly()
COMMIT_KILLS = 10 if NIGHTLY else 1
BATCHES_A_KILL, ROWS = 6, 50
"""So that there is always something left to kill."""
APPLICATION_KILLS = 10

COMMITS = """
import sys
from drivetrain import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.sink import SinkContext
bootstrap, topic, state = sys.argv[1:]
writer = open_sink(sinks.kafka(bootstrap, topic, value="v"), SinkContext("app", "out", state))
for batch in writer.prepared():
    writer.commit(batch)
    print(batch, flush=True)
"""

APPLICATION = """
from drivetrain import Application, sinks, sources
app = Application("copied")
numbers = app.read(sources.generate(rows=int(app.setting("count")))).select(n="id")
kafka = app.setting("bootstrap")
numbers.sink(sinks.kafka(kafka, "killed-once", key="n"))
numbers.sink(sinks.kafka(kafka, "killed-least", key="n", guarantee="at least once"))
"""


def killed(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.mark.nightly("test_kafka_sink_once reaches what it reaches")
def test_commits_killed_at_random_moments_happen_once(broker: Broker, topic: str, tmp_path: Path) -> None:
    batches, size = 40 * COMMIT_KILLS, 250
    broker.create(topic, 3)
    outbox = Outbox(str(tmp_path / "state"), "out")
    files = ChannelFiles(str(tmp_path / "state" / "outbox"), durable=False)
    for batch in range(batches):
        said = [str(batch * size + i).encode() for i in range(size)]
        columns = {
            "key": pa.array(said),
            "value": pa.array(said),
            TS: pa.array([0] * size, pa.timestamp("us", "UTC")),
        }
        segment = write_segment(files, f"out-{batch}", pa.table(columns).to_batches())
        outbox.prepare(PreparedBatch(batch, (segment,)))
    draw, kills = random.Random(SEED), 0
    line = [sys.executable, "-c", COMMITS, broker.bootstrap, topic, str(tmp_path / "state")]
    deadline = time.monotonic() + 200
    while True:
        assert time.monotonic() < deadline, f"seed {SEED}"
        process = subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        if kills < COMMIT_KILLS:
            process.stdout.readline()
            time.sleep(draw.random() * 0.12)  # not waiting for anything: a random moment to die at
            if process.poll() is None:
                killed(process)
                kills += 1
                continue
        process.communicate(timeout=120)
        assert process.returncode == 0, f"seed {SEED}"
        break
    assert kills == COMMIT_KILLS, f"seed {SEED}"
    found = Counter(map(int, values(broker, topic)))
    assert found == Counter(range(batches * size)), f"seed {SEED}"


@pytest.mark.nightly("test_kafka_end_to_end with more kills")
@pytest.mark.timeout(3_600)
def test_an_application_killed_again_and_again_publishes_each_result_once(
    broker: Broker, tmp_path: Path
) -> None:
    count = ROWS * BATCHES_A_KILL * (APPLICATION_KILLS + 1)
    for name in ("killed-once", "killed-least"):
        broker.create(name, 3)
    (tmp_path / "copied.py").write_text(APPLICATION)
    draw, kills, output = random.Random(SEED), 0, b""
    while True:
        process = run(tmp_path, broker, count)
        if kills < APPLICATION_KILLS:
            goal = sum(ends(broker, "killed-once")) + 1
            deadline = time.monotonic() + 240
            while process.poll() is None and sum(ends(broker, "killed-once")) < goal:
                assert time.monotonic() < deadline, f"seed {SEED}"
                time.sleep(0.02)
            time.sleep(draw.random() * 0.8)  # not waiting for anything: a random moment to die at
            if process.poll() is None:
                killed(process)
                kills += 1
                continue
        output = process.communicate(timeout=300)[0]
        assert process.returncode == 0, output.decode()
        break
    assert kills == APPLICATION_KILLS, f"seed {SEED}"
    once = Counter(values(broker, "killed-once"))
    assert once == Counter(f'{{"n":{n}}}' for n in range(count)), f"seed {SEED}, {kills} kills"
    least = Counter(values(broker, "killed-least"))
    assert set(least) == set(once), f"seed {SEED}, {kills} kills"


def run(directory: Path, broker: Broker, count: int) -> subprocess.Popen[bytes]:
    line = [
        sys.executable, "-m", "drivetrain.cli", "run", str(directory / "copied.py"),
        "--set", f"count={count}", "--set", f"bootstrap={broker.bootstrap}",
        "--set", "spark.driver-memory=1 GiB", "--set", f"run.max-batch-rows={ROWS}",
        "--set", "spark.master=local[2]", "--state-dir", str(directory / "state"),
    ]  # fmt: skip
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
