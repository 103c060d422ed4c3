from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain import crash_points
from drivetrain.crash_points import VARIABLE, CrashPoint, armed, killer, maybe_crash

SOURCE = Path(crash_points.__file__).parent


def test_nothing_happens_at_a_point_that_no_test_has_armed() -> None:
    maybe_crash(CrashPoint.BEFORE_ENTRY)


def test_an_armed_point_may_raise_and_is_disarmed_at_the_end() -> None:
    def crash(point: CrashPoint) -> None:
        raise RuntimeError(point)

    with armed(crash), pytest.raises(RuntimeError, match="after-sink"):
        maybe_crash(CrashPoint.AFTER_SINK)
    maybe_crash(CrashPoint.AFTER_SINK)


def test_a_process_is_killed_when_it_comes_to_its_point_for_the_time_that_was_said() -> None:
    program = (
        "from drivetrain.crash_points import CrashPoint, maybe_crash\n"
        "for time in (1, 2, 3):\n"
        "    print(time, flush=True)\n"
        "    maybe_crash(CrashPoint.BEFORE_SINK)\n"
        "    maybe_crash(CrashPoint.AFTER_SINK)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, VARIABLE: "after-sink:2"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, [b"1", b"2"]), ended.stderr


@pytest.mark.parametrize("text", ["after-sink", "nowhere:1", "after-sink:often"])
def test_a_text_that_names_no_point_or_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid CrashPoint|invalid literal"):
        killer(text)


def test_every_point_is_come_to_somewhere() -> None:
    code = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    assert [point for point in CrashPoint if f"maybe_crash(CrashPoint.{point.name})" not in code] == []
