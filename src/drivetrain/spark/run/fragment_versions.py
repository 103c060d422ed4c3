"""One fragment in a change of the application: has its query switch to a version, and reports its progress.

Problem: an embedded run changes all fragments of an application, an executor those that it runs. A fragment
must behave the same in both.

Called by `live_changes`, and by the cluster's executor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drivetrain.config.references import scrubbed
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery

if TYPE_CHECKING:
    from drivetrain.core.change.handover import Handover
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.run.fragment_driver import FragmentDriver


def switch_version(
    driver: FragmentDriver,
    number: int,
    made: Callable[[MicroBatchQuery, BranchSet | None], BranchSet],
    *,
    before: int = 0,
    on_trial: bool,
) -> None:
    """Switch a fragment to a version from its next batch on; does nothing while it cannot change.

    With `before` it runs that version too, until it has handed over. `made` makes the version's branches for
    a query, from those that the query already has if they fit.
    """
    query = driver.query
    if query.versions is None or driver.is_recovering or driver.is_finished:
        return
    assert isinstance(query, MicroBatchQuery), "only those have versions"
    query.versions.on_trial = on_trial
    if not query.versions.wanted.is_of(number, before):
        query.versions.want(made(query, query.versions.at_hand(number, before)))


def end_unbegun(driver: FragmentDriver, channel: str, uri: str) -> None:
    """End a new channel of a fragment that has finished before it switched to the channel's version."""
    if not driver.is_finished or channel in driver.query.branches.stores:
        return
    begins = ChannelBeginning(uri).read()
    if begins is None:
        return
    store = ChannelStore(uri, fragment=driver.fragment)
    ChannelBeginning(uri).begin(store, driver.query.batch_id, FINAL_CLOCK_MS, None)
    store.append_clock(FINAL_CLOCK_MS)


def fits(found: BranchSet | None, query: MicroBatchQuery) -> BranchSet | None:
    """Branches that were made for a fragment, if they are for this query of it.

    A query that was started again writes to its channels as another incarnation of their producer.
    """
    return found if found is not None and found.branches.stores is query.branches.stores else None


def has_new_messages(query: FragmentQuery, handover: Handover) -> bool:
    """Whether the new one of the two versions that a fragment runs got a message in a committed batch."""
    return has_reached(query, handover.number, handover.before)


def has_reached(query: FragmentQuery, number: int, before: int = 0) -> bool:
    """Whether messages reached a version in a committed batch of a fragment that runs it, after version
    `before` if that hands over."""
    first = None if query.versions is None else query.versions.reached(number, before)
    return first is not None and first <= query.newest_committed


def note_alone(driver: FragmentDriver) -> bool:
    """Record that the next batch runs the new version alone, as that batch may be a long time away.

    Returns whether that is recorded, or no batch follows.
    """
    query = driver.query
    if driver.is_finished:
        return True
    if driver.is_recovering or query.versions is None or query.versions.wanted.before:
        return False
    if not query.turn.acquire(blocking=False):
        return False
    try:
        if not query.is_committed() or query.batch_id < query.replay_until:
            return False
        query.versions.note_next(query.batch_id + 1)
        return True
    finally:
        query.turn.release()


def why_it_failed(error: Exception) -> str:
    """The error in words, with the user's traceback if there is one, without secrets: it is stored."""
    if not isinstance(error, DrivetrainError):
        return scrubbed(f"{type(error).__name__}: {error}")
    summary = error.what if error.where is None else f"{error.where}: {error.what}"
    more = (error.got, getattr(error, "user_traceback", None))
    return scrubbed("\n".join([summary, *(part for part in more if part)]))
