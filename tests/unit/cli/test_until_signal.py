"""What serves until a signal: the first ends it in order, the second at once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SLOW_S = 60
SERVE = """
import asyncio, sys
from drivetrain.cli.until_signal import serve_until_signal

async def serve(stop):
    print("serving", flush=True)
    await stop.wait()
    print("ending", flush=True)
    if sys.argv[1] == "slowly":
        await asyncio.Event().wait()

serve_until_signal(serve)
print("ended", flush=True)
"""


def started(how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_in_order(number: signal.Signals) -> None:
    with started("at once") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=SLOW_S)
    assert (process.returncode, out, err) == (0, "ending\nended\n", "")


def test_the_second_signal_ends_at_once() -> None:
    with started("slowly") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ending\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SLOW_S)
    assert (process.returncode, out, err) == (128 + signal.SIGTERM, "", "ended at once\n")
