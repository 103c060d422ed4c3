"""How the program ends when Spark's Java process has gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, subprocess, sys
from drivetrain.cli import main
from pyspark import SparkContext

class Gateway:
    proc = subprocess.Popen([sys.executable, "-c", {java!r}])

SparkContext._gateway = Gateway()
if {ended}:
    Gateway.proc.wait()
atexit.register(lambda: print("cleaned up"))

class Aborts:
    def __del__(self):  # only the interpreter's own clean-up comes here
        print("torn down", flush=True)

main.kept = Aborts()

def ends():
    print("told", end=" ")
    sys.exit(4)

main.app = ends
main.main()
"""


@pytest.mark.parametrize("ended", [True, False])
def test_a_process_that_has_lost_java_ends_with_its_code_and_no_tear_down(ended: bool) -> None:
    program = PROGRAM.format(java="pass" if ended else "import time; time.sleep(60)", ended=ended)
    program = (
        program
        if ended
        else program.replace("main.main()", "atexit.register(Gateway.proc.kill)\nmain.main()")
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4, done.stderr
    assert done.stdout.startswith("told cleaned up")
    assert ("torn down" in done.stdout) is not ended
