"""The Nexmark example gives what one batch query gives."""

from __future__ import annotations

import pytest
from benchmarks import nexmark
from benchmarks.nexmark_expected import QUERIES
from harness import Harness

from drivetrain.code.application_file import load_application

EVENTS = 6_000


def run(drive: Harness, *queries: str) -> None:
    data, out = drive.directory / "events", drive.directory / "out"
    sets = {"events": str(EVENTS), "data": str(data), "output": str(out), "queries": ",".join(queries)}
    drive.run(load_application(str(nexmark.EXAMPLE), sets))
    for query in queries:
        nexmark.check(query, data, drive.directory)


@pytest.mark.nightly("random applications draw their operators")
def test_queries_of_nexmark_agree_with_batch_queries(drive: Harness) -> None:
    run(drive, "q2", "q5", "q8")


@pytest.mark.nightly("all queries are 23 fragments")
def test_all_queries_of_nexmark_agree_with_batch_queries(drive: Harness) -> None:
    run(drive, *QUERIES)
