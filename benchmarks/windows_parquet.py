"""Ten-second windows per key over 5 million events in Parquet files: what `windows` does with JSON lines.

python -m benchmarks.windows_parquet [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from benchmarks.measure import main
from benchmarks.windows import job

JOB = job("windows_parquet", "10 s windows per key over 5 million events in Parquet files", "parquet")

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
