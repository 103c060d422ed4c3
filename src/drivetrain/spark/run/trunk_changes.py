"""Gives a running fragment another trunk: only its query restarts, from its checkpoint.

Problem: a trunk is compiled into Spark's query, and a batch that may have reached an output has to run again
with the trunk that it began with, also after a crash. So a fragment can switch to another trunk only between
two batches, with a new query.

Design: the change is checked by compiling the trunk separately. Once the version is wanted, the query is
drained: the batch that runs ends and is committed, no other begins. Then the next query is made and started
in a separate thread, while the other fragments continue. A query that starts after a crash gets the trunk of
the batch that was interrupted (`first_context`), and restarts when that is committed.

What if we die here: nothing is written. Spark's checkpoint, the batch's noted version and the version in
force determine which trunk the next query gets.

Invariants:

1. A batch that may have reached an output runs again with the trunk of its own version.
2. A state is read only with the types with which it was written.

Called by `live_changes`, `change_proposal` and `execution`, and by executors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.api.operations import Aggregate
from drivetrain.core.change.trunks import has_same_trunk
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.spark.session.offset_log import batch_numbers, committed
from drivetrain.spark.state.state_migration import require_same_version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.core.plan.plan import Fragment
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
    from drivetrain.spark.prepare.compile_context import CompileContext
    from drivetrain.spark.prepare.trunk import Trunk
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class TrunkChanges:
    """Restarts the queries of `drivers`, by id, whose trunk is not that of the version they are to run."""

    def __init__(self, versions: ApplicationVersions, drivers: Mapping[str, FragmentDriver]) -> None:
        self._versions: Final = versions
        self._drivers: Final = drivers
        self._same: Final[dict[tuple[str, int, int], bool]] = {}
        self._drained: Final[dict[str, FragmentQuery]] = {}
        self._restarting_with: Final[dict[str, int]] = {}
        """The version with which the next query of a fragment is being made."""

    def restarts(self, fragment: str, number: int, *, on_trial: bool) -> bool:
        """Whether a fragment has yet to restart before it can run a version; takes the next step of that."""
        driver = self._drivers[fragment]
        query = driver.query
        if driver.is_recovering or driver.is_finished:
            return False
        if not self.differs(driver, number) and self._drained.get(fragment) is not query:
            return False  # one that was drained for a change that was given up has to restart, too
        if (query.has_failed and not query.has_drained) or query.batch_id < query.replay_until:
            return True  # the batch from before this query comes first, with its own version
        driver.drain()
        self._drained[fragment] = query
        if not driver.is_draining and query.is_committed():
            self._restarting_with[fragment] = number
            driver.restart(lambda made: _set_trial(made, on_trial=on_trial))
        return True

    def version_of(self, driver: FragmentDriver) -> int:
        """The version that is to blame if a fragment has failed."""
        versions, going = driver.query.versions, self._restarting_with.get(driver.fragment)
        assert versions is not None
        return going if going is not None and driver.has_lost_its_query else versions.running.number

    def has_left(self, driver: FragmentDriver, number: int) -> bool:
        """Whether a batch has failed with the trunk of another version, and may now run with `number`."""
        versions = driver.query.versions
        assert versions is not None
        return self.differs(driver, number) and not versions.is_bound(driver.query.batch_id + 1)

    def differs(self, driver: FragmentDriver, number: int) -> bool:
        """Whether the query of a fragment has another trunk than that of a version."""
        versions, fragment = driver.query.versions, driver.fragment
        if versions is None or versions.trunk == number:
            return False
        key = fragment, versions.trunk, number
        if key not in self._same:
            before, after = (self._versions.of_number(n).record for n in key[1:])
            self._same[key] = fragment not in after.fragments or _can_stay(before, after, fragment)
        return not self._same[key]


def _can_stay(before: GraphVersion, after: GraphVersion, fragment: str) -> bool:
    """Whether a query with the trunk of version `before` can run version `after`: it keeps its state."""
    return fragment not in after.drops and has_same_trunk(before, after, fragment)


def _set_trial(query: FragmentQuery, *, on_trial: bool) -> None:
    """Let a query know whether its first batch is on trial, before it starts."""
    if query.versions is not None:
        query.versions.on_trial = on_trial


def first_context(versions: ApplicationVersions, fragment: str) -> CompileContext | None:
    """The context of a fragment's next query, for a batch that was interrupted.

    None: that of the version in force. A version that cannot be loaded is reported, and ignored.
    """
    own, directory = versions.in_force.record, versions.rundir.fragment(fragment)
    checkpoint = directory / "checkpoint"
    planned = max(batch_numbers(checkpoint / "offsets"), default=-1)
    if planned <= committed(checkpoint):
        return None
    number = BatchVersions(directory).version_of(planned)
    if number is None or number == own.number:
        return None
    stored = versions.rundir.versions
    try:
        if number not in stored.numbers() or stored.is_rolled_back(number):
            return None
        if versions.was_held(fragment, number):
            return None  # it was planned, and not begun
        record = stored.version(number)
        if fragment not in record.fragments or _can_stay(record, own, fragment):
            return None
        return versions.of_number(number).context
    except DrivetrainError as error:
        notice = f"{fragment} began its last batch with version {number}, which cannot be loaded"
        versions.notices.append(f"{notice}; it continues with version {own.number}: {error}")
        return None


def check_trunk(
    versions: ApplicationVersions, loaded: LoadedVersion, fragment: Fragment, query: MicroBatchQuery
) -> None:
    """Compile the trunk and the branches with which a query is to restart; nothing of it is kept.

    Raises the error of the operator that Spark refuses, and UserError when a state or a channel would hold
    something else.
    """
    is_dropped = fragment.id in loaded.record.drops
    if fragment.stateful is not None and not is_dropped:
        before = query.plan.graph.nodes[fragment.stateful]
        require_same_version(loaded.plan.graph.nodes[fragment.stateful], before)
    with tempfile.TemporaryDirectory(prefix="drivetrain-trunk-") as place:
        trunk, _ = versions.compiled_aside(loaded.context, fragment, Path(place))
        try:
            if is_dropped:
                _refuse_other_inputs(loaded, fragment, query.trunk, trunk)
            else:
                _refuse_other_columns(loaded, fragment, query.trunk, trunk)
            versions.branch_set(loaded, query, trunk)
        finally:
            trunk.close()


def _refuse_other_inputs(loaded: LoadedVersion, fragment: Fragment, before: Trunk, after: Trunk) -> None:
    """Raise UserError when Spark would read other inputs: its checkpoint has a position in each input."""
    if before.inputs != after.inputs:
        raise UserError(
            "the query would have other inputs, for a clock of its own, so its checkpoint does not fit",
            where=str(loaded.plan.graph.nodes[fragment.stateful or fragment.id]),
            remedy="give the processor and the sinks that follow it other names: it then starts in a "
            "fragment of its own",
        )


def _refuse_other_columns(loaded: LoadedVersion, fragment: Fragment, before: Trunk, after: Trunk) -> None:
    """Raise UserError when a state was written with other columns than it would be read with."""
    if fragment.stateful is None:
        return
    node = loaded.plan.graph.nodes[fragment.stateful]
    # What an aggregation keeps follows from its results; other states may hold whole messages.
    is_aggregate = isinstance(node.operation, Aggregate)
    made = (before.df.schema,) if is_aggregate else before.reads()
    wanted = (after.df.schema,) if is_aggregate else after.reads()
    if [_types(schema) for schema in made] != [_types(schema) for schema in wanted]:
        raise UserError(
            "the state was made of other columns",
            where=str(node),
            expected="; ".join(map(_shown, made)),
            got="; ".join(map(_shown, wanted)),
            remedy=f"leave these columns as they are; or give {node.id} and the sinks that follow it other "
            "names: then it starts in a fragment of its own, with an empty state",
        )


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _shown(schema: StructType) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _types(schema) if not name.startswith("__"))
