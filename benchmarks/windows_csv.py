"""Ten-second windows per key over 5 million events in CSV files: what `windows` does with JSON lines.

python -m benchmarks.windows_csv [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from benchmarks.measure import main
from benchmarks.windows import job

JOB = job("windows_csv", "10 s windows per key over 5 million events in CSV files", "csv")

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
