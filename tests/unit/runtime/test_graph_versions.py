"""Versions of a graph in the state directory: which one is in force, and what is kept of each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drivetrain.api import Application, sinks, sources
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.planner import plan
from drivetrain.errors import InputError
from drivetrain.runtime import graph_versions
from drivetrain.runtime.batch_versions import FILE, BatchVersions
from drivetrain.runtime.graph_versions import GraphVersions


def version(least: int) -> GraphVersion:
    app = Application("shop")
    read = app.read(sources.text("in"), name="read")
    read.filter(f"length(value) > {least}", name="long").sink(sinks.none(), name="out")
    return version_of(plan(app.graph()), lambda _: "")


@pytest.fixture
def versions(tmp_path: Path) -> GraphVersions:
    return GraphVersions(tmp_path)


def in_force(versions: GraphVersions) -> int:
    found = versions.in_force()
    return 0 if found is None else found.number


def test_the_newest_that_was_not_rolled_back_is_in_force(versions: GraphVersions) -> None:
    assert in_force(versions) == 0
    versions.note(version(1), code=b"one")
    second = versions.note(version(2), "update", b"two")
    assert (second.number, second.follows, second.made_how) == (2, 1, "update")
    assert in_force(versions) == 2
    versions.note_ending(2, Outcome.ROLLED_BACK, "read", "why")
    assert in_force(versions) == 1
    assert versions.is_rolled_back(2)
    third = versions.note(version(3), "update")
    assert (third.number, third.follows) == (3, 1)
    versions.note_ending(3, Outcome.DONE)
    assert in_force(versions) == 3
    assert [versions.code(number) for number in versions.numbers()] == [b"one", b"two", None]


def test_the_graph_in_force_is_not_noted_again_but_one_that_was_rolled_back_is(
    versions: GraphVersions,
) -> None:
    versions.note(version(1))
    assert versions.note(version(1), code=b"one").number == 1
    assert versions.code(1) == b"one"
    versions.note(version(2), "update")
    versions.note_ending(2, Outcome.ROLLED_BACK, "read", "why")
    assert versions.next_number(version(1)) == 1
    assert versions.note(version(2), "update").number == 3


def test_a_damaged_outcome_is_an_error_that_says_what_to_do(versions: GraphVersions, tmp_path: Path) -> None:
    versions.note(version(1))
    (tmp_path / "versions" / "1.outcome").write_text("torn")
    with pytest.raises(InputError, match="outcome of version 1"):
        versions.in_force()
    assert versions.note(version(1)).number == 2, "a run does not need it"


def test_a_proposal_is_there_until_it_is_withdrawn(versions: GraphVersions) -> None:
    id = "0" * 32
    assert not versions.has_proposal(id)
    versions.propose_archive(id, b"zip")
    assert versions.proposed_archive(id).read_bytes() == b"zip"
    assert not versions.has_proposal(id)
    versions.propose(id, version(1), b"code")
    assert versions.has_proposal(id)
    assert versions.numbers() == []
    assert versions.proposal(id) == (version(1), b"code")
    versions.withdraw(id)
    assert not list(versions.proposed_archive(id).parent.iterdir())
    with pytest.raises(InputError, match="cannot be read"):
        versions.proposal(id)


def test_a_trial_goes_back_to_the_version_before_until_it_has_an_outcome(versions: GraphVersions) -> None:
    first = versions.note(version(1))
    assert (versions.is_on_trial(first), versions.trial_of(first)) == (False, None)
    second = versions.note(version(2), "update")
    assert versions.is_on_trial(second)
    assert versions.trial_of(second) == first
    versions.note_ending(2, Outcome.DONE)
    assert (versions.is_on_trial(second), versions.trial_of(second)) == (False, None)


def test_what_is_to_be_removed_is_forgotten_sink_by_sink(versions: GraphVersions) -> None:
    versions.note(version(1))
    versions.note(version(2), "update")
    versions.note_ending(2, Outcome.ROLLED_BACK, to_remove=("one", "other"))
    assert versions.to_remove() == {2: ("one", "other")}
    versions.note_removed(2, "one")
    assert versions.to_remove() == {2: ("other",)}
    versions.note_removed(2, None)
    assert versions.to_remove() == {}


def test_a_very_long_reason_is_cut(versions: GraphVersions) -> None:
    versions.note(version(1))
    versions.note_ending(1, Outcome.ROLLED_BACK, "read", "x" * 1_000_000)
    ending = versions.ending(1)
    assert ending is not None
    assert len(str(ending.why)) < 100_000


def test_batches_have_the_version_that_was_noted_before_them(tmp_path: Path) -> None:
    noted = BatchVersions(tmp_path)
    assert noted.version_of(0) is None
    assert noted.newest() is None
    noted.note(0, 1)
    noted.note(1, 1)
    noted.note(5, 2)
    again = BatchVersions(tmp_path)
    assert [again.version_of(batch) for batch in (0, 4, 5, 9)] == [1, 1, 2, 2]
    assert again.newest() == 2
    again.note(3, 3)  # after the fragment went back to a checkpoint
    assert [again.version_of(batch) for batch in (2, 3, 5)] == [1, 3, 3]


def test_a_batch_that_failed_may_run_with_any_version_until_it_runs_again(tmp_path: Path) -> None:
    noted = BatchVersions(tmp_path)
    noted.note(0, 1)
    noted.note_free(0)
    assert BatchVersions(tmp_path).version_of(0) is None
    assert BatchVersions(tmp_path).newest() == 1
    BatchVersions(tmp_path).note(0, 1)
    assert BatchVersions(tmp_path).version_of(0) == 1


def test_most_batches_write_nothing(tmp_path: Path) -> None:
    noted = BatchVersions(tmp_path)
    noted.note(0, 1)
    (tmp_path / FILE).unlink()
    noted.note(1, 1)
    noted.note(2, 1)
    assert not (tmp_path / FILE).exists()


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(msgspec.json.encode({"since": 1}))
    with pytest.raises(InputError, match="which version of the graph"):
        BatchVersions(tmp_path).newest()


def test_the_history_of_a_version_is_kept_as_long_as_the_version(
    versions: GraphVersions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(graph_versions, "_KEPT", 2)
    versions.note(version(1))
    assert versions.stages(1) == ()
    stages = (ChangeStage("proposed", 5), ChangeStage("begun", 7, "read"))
    versions.note_stages(1, stages)
    assert versions.stages(1) == stages
    assert versions.numbers() == [1], "a history is no version"
    versions.note(version(2), "update")
    versions.note(version(3), "update")
    assert not (tmp_path / "versions" / "1.stages").exists()


def test_a_batch_of_two_versions_is_noted_with_both(tmp_path: Path) -> None:
    noted = BatchVersions(tmp_path)
    noted.note(0, 1)
    noted.note(3, 2, before=1)
    noted.note(4, 2, before=1)
    noted.note(6, 2)
    found = [BatchVersions(tmp_path).since_of(batch) for batch in (2, 3, 5, 6)]
    assert [(one.batch_id, one.version, one.before) for one in found if one] == [
        (0, 1, 0),
        (3, 2, 1),
        (3, 2, 1),
        (6, 2, 0),
    ]
    noted.note_free(6)
    assert noted.since_of(6) is None
    assert noted.newest_since() is not None


def test_a_version_that_was_rolled_back_says_nothing_of_whether_the_one_before_ran_alone(
    tmp_path: Path,
) -> None:
    noted = BatchVersions(tmp_path)
    noted.note(0, 1)
    noted.note(3, 2, before=1)
    noted.note(5, 3)
    assert not noted.has_run_alone(2), "it would get messages before its time"
    noted.note(6, 2)
    noted.note(8, 4)
    assert BatchVersions(tmp_path).has_run_alone(2)
