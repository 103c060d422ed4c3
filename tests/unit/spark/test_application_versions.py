"""The versions of one process: what is compiled of which."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.prepare.opened_sinks import OpenSinks
from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion


def loaded(number: int, **sinks: object) -> LoadedVersion:
    context: Any = SimpleNamespace(plan=f"plan {number}")
    writers: Any = sinks
    return LoadedVersion(GraphVersion("shop", {}, {}, number), context, writers)


def versions_of(first: LoadedVersion) -> tuple[ApplicationVersions, Any]:
    execution: Any = SimpleNamespace(
        context=first.context,
        sinks=OpenSinks(first.sinks),
        engine=None,
        rundir=SimpleNamespace(app_id="shop", versions=None),
    )
    return ApplicationVersions(execution, first.record), execution


def change(versions: ApplicationVersions, to: LoadedVersion) -> None:
    versions.recorded(to, to.record)
    versions.put_in_force(to.record.number)


def test_a_query_has_the_version_that_it_was_compiled_with_though_another_came_into_force(
    tmp_path: Path,
) -> None:
    first, second = loaded(1), loaded(2)
    versions, _ = versions_of(first)
    query: Any = MicroBatchQuery.__new__(MicroBatchQuery)
    query.plan, query.fragment, query.directory, query.replay_until = "plan 1", "f", tmp_path, -1
    query.branches = SimpleNamespace(context=first.context)
    change(versions, second)  # while it was compiled
    versions.attach(query)
    assert query.versions.running.number == 1
    query.branches = SimpleNamespace(context=second.context)
    versions.attach(query)
    assert query.versions.running.number == 2


def test_a_version_that_comes_into_force_again_has_its_own_sinks() -> None:
    versions, execution = versions_of(loaded(1, out="the old file"))
    change(versions, loaded(2, out="the new file", more="another"))
    assert execution.sinks["out"] == "the new file"
    versions.put_in_force(1)
    assert versions.in_force.sinks == {"out": "the old file"}
    assert execution.sinks["out"] == "the old file"
