"""The versions of one process: what is compiled of which."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.planner import plan
from drivetrain.errors import InputError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.graph_versions import GraphVersions
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
    query.plan, query.fragment = "plan 1", SimpleNamespace(id="f")
    query.directory, query.replay_until = tmp_path, -1
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


def with_filter(least: int) -> GraphVersion:
    """A version with two fragments, one of which has the filter."""
    app = Application("shop")
    one = app.read(sources.text("in"), name="one").filter(f"length(value) > {least}", name="long")
    one.sink(sinks.none(), name="out")
    app.read(sources.text("others"), name="other").sink(sinks.none(), name="rest")
    return version_of(plan(app.graph()), lambda _: "")


def test_an_old_batch_is_computed_again_without_the_code_of_its_version_if_nothing_differs(
    tmp_path: Path,
) -> None:
    stored = GraphVersions(tmp_path)
    stored.note(with_filter(1), code=b"no code that can be loaded")
    record = stored.note(with_filter(2), "update")
    first = LoadedVersion(record, loaded(2).context, {})
    versions, execution = versions_of(first)
    versions.rundir.versions = versions._versions = stored  # type: ignore[misc]
    execution.rundir.fragment = lambda id: tmp_path / id
    for fragment in ("one", "other"):
        (tmp_path / fragment).mkdir()
        BatchVersions(tmp_path / fragment).note(0, 1)
    assert versions.context_of("other", 4) is first.context
    assert not versions.notices
    assert versions.context_of("one", 4) is first.context
    assert "batch 4 of one is computed again with the version in force" in versions.notices.pop()


@pytest.mark.parametrize(
    ("earlier", "newest", "is_both"),
    [
        ([], 1, True),
        ([], 2, False),
        pytest.param([], 3, True, id="3, which was rolled back, came before 2 ran alone"),
        pytest.param([2], 3, False, id="3, which was rolled back, came after 2 ran alone"),
    ],
)
def test_a_batch_that_spark_has_planned_before_a_handover_runs_both_versions(
    tmp_path: Path, earlier: list[int], newest: int, is_both: bool
) -> None:
    stored = GraphVersions(tmp_path)
    stored.note(with_filter(1))
    record = stored.note(msgspec.structs.replace(with_filter(2), at_ms=5_000), "update")
    versions, _ = versions_of(LoadedVersion(record, loaded(2).context, {}))
    versions._versions = stored  # type: ignore[misc]
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "commits" / "6").touch()
    for fragment in ("one", "other"):
        directory = tmp_path / fragment
        directory.mkdir()
        noted = BatchVersions(directory)
        for batch_id, number in enumerate([*earlier, newest]):
            noted.note(batch_id, number)
        query: Any = SimpleNamespace(fragment=SimpleNamespace(id=fragment), checkpoint=checkpoint)
        versions._settle(noted, query)
        found = [BatchVersions(directory).since_of(batch) for batch in (6, 7)]
        both = (2, 1) if is_both and fragment == "one" else (newest, 0)
        assert [(one.version, one.before) for one in found if one] == [(newest, 0), both]


def test_a_version_that_hands_over_and_cannot_be_read_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    stored = GraphVersions(tmp_path)
    stored.note(with_filter(1))
    record = stored.note(msgspec.structs.replace(with_filter(2), at_ms=5_000), "update")
    (tmp_path / "versions" / "1").write_text("damaged")
    versions, _ = versions_of(LoadedVersion(record, loaded(2).context, {}))
    versions._versions = stored  # type: ignore[misc]
    with pytest.raises(InputError, match="version 1 hands over to version 2") as error:
        versions.handing_over(record)
    assert "another graph" in str(error.value.remedy)
