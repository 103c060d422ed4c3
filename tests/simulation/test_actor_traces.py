"""A simulation of whole actor systems is reproducible in another process, byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from test_actors_under_faults import test_asks_tells_and_watches_keep_their_promises_under_faults as run
run()
"""


def trace_of(seed: int, hash_seed: str, file: Path) -> bytes:
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)],
        env={
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "DRIVETRAIN_SEED": str(seed),
            "DRIVETRAIN_TRACE": str(file),
        },
        check=True,
        timeout=120,
    )
    return file.read_bytes()


@pytest.mark.parametrize("seed", [5, 11])
def test_the_same_seed_gives_the_same_trace_in_another_process(seed: int, tmp_path: Path) -> None:
    one = trace_of(seed, "1", tmp_path / "one")
    other = trace_of(seed, "77", tmp_path / "other")
    assert len(one.splitlines()) > 500
    assert one == other
