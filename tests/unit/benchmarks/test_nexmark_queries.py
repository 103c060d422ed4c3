"""Each query of the Nexmark example is an application by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.nexmark import EXAMPLE
from benchmarks.nexmark_expected import QUERIES

from drivetrain.code.application_file import load_application
from drivetrain.errors import ConfigError


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_alone_reads_only_what_it_needs(query: str, tmp_path: Path) -> None:
    sets = {"events": "50", "data": str(tmp_path / "events"), "output": "out", "queries": query}
    graph = load_application(str(EXAMPLE), sets).graph()
    names = graph.nodes.keys()
    assert names & {"persons", "auctions", "bids"}
    assert f"{query}_files" in names


@pytest.mark.parametrize("queries", ["q99", "q5,q99", "q5,", ""])
def test_an_unknown_query_is_refused_with_those_that_there_are(queries: str, tmp_path: Path) -> None:
    events = tmp_path / "events"
    sets = {"events": "50", "data": str(events), "output": "out", "queries": queries}
    with pytest.raises(ConfigError, match="there is no query") as refused:
        load_application(str(EXAMPLE), sets)
    assert all(query in str(refused.value) for query in QUERIES)
    assert not events.exists()
