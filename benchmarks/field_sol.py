"""SOL, as in `sol`, beside the peers of the field: 100-byte messages through a hash partition, counted.

python -m benchmarks.field_sol [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from benchmarks import field_peers, sol
from benchmarks.measure import Scale, main
from benchmarks.results import read_output

COUNTS = ["messages", "payload_bytes"]


def given(scale: Scale, _work: Path) -> dict[str, Any]:
    return {
        "count": sol.messages(scale),
        "units": sol.messages(scale),
        "warm_count": sol.WARM_MESSAGES,
        "warm_units": sol.WARM_MESSAGES,
    }


def check(scale: Scale, work: Path) -> None:
    """What a peer's sinks counted, each in a line; ours and PySpark have checked it themselves."""
    if (work / "out").is_dir():
        counted = read_output(work / "out", COUNTS)
        found = [pc.sum(counted[name]).as_py() for name in COUNTS]
        sol.expect("messages in the sinks", found[0], sol.messages(scale))
        sol.expect("bytes of payload in the sinks", found[1], sol.messages(scale) * sol.PAYLOAD_BYTES)


JOB = replace(
    field_peers.job(
        sol.JOB,
        field_peers.in_python(field_peers.BYTEWAX, "sol", given),
        field_peers.in_java(field_peers.STORM, "sol", given),
        field_peers.in_java(field_peers.GEARPUMP, "sol", given),
    ),
    check=check,
    measure="per_s",
    unit="messages/s",
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
