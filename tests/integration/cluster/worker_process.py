"""The process of a worker whose commands a test chooses; started by `worker_world`.

Its one argument is JSON: `sets`, configuration by key, and `commands`, the commands by kind of process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.cluster.worker import serve_worker
from drivetrain.config import Config
from drivetrain.errors import DrivetrainError


async def run(told: dict[str, dict[str, str]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config = Config.load(None, {}, told["sets"])
    commands = {ProcessKind(kind): command for kind, command in told["commands"].items()}
    await serve_worker(config, stop, commands=commands)


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    try:
        asyncio.run(run(json.loads(sys.argv[1])))
    except DrivetrainError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
