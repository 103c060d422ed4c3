"""A process that publishes numbers to a stream of Redis, until it is killed.

    python redis_process.py <state directory> <port>

For every line of its input it forks such a process, and prints its id. Batch n always has the same
numbers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "unit" / "spark" / "sinks")]

from redis_batches import PASSWORD, stage  # noqa: E402

from drivetrain.api import sinks  # noqa: E402
from drivetrain.connectors.redis.redis_writer import RedisWriter  # noqa: E402
from drivetrain.spark.connector.sink import SinkContext  # noqa: E402

ROWS = 20


def main(state: str, port: str) -> None:
    sink = sinks.redis(f"redis://:${{{PASSWORD}}}@127.0.0.1:{port}/0", stream="events", keep="200 ms")
    writer = RedisWriter(sink, SinkContext("app-1", "out", state))
    writer.validate()
    print("ready", flush=True)
    waiting = writer.prepared()
    for batch in waiting:
        writer.commit(batch)
    batch = writer._opened().published
    while True:
        batch += 1
        stage(writer, batch, id=list(range(batch * ROWS, (batch + 1) * ROWS)))
        writer.commit(batch)
        print(batch, flush=True)


def fork() -> None:
    """Fork one process for each line of the input."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            print("process", os.getpid(), flush=True)
            main(sys.argv[1], sys.argv[2])
        os.waitpid(child, 0)


if __name__ == "__main__":
    fork()
