"""Handovers in an embedded run: the shell around `core.change.handover`.

Problem: a change takes effect at a time T of the messages. It is exact only if, in every affected
fragment, the previous version has processed no message of T or later when the new version is recorded, and
processes none afterwards, even if processes die.

Design: `handover_times` refuses changes that cannot be divided by time. `paused` holds the affected fragments
between two batches: no batch begins, and running ones end and are committed. Then it compares T with the
progress of the messages, and the version is recorded. So a batch without a commit at that moment begins after
it, and runs both versions (`ApplicationVersions.attach`). `look` reports the progress of each fragment to the
core.

What if we die here: before the record nothing has changed. After it, a fragment's own record of its batches
states whether it runs the new version alone; if it does not, it runs both.

Invariants:

1. In affected fragments, the previous version has processed no message at T or later.

Called by `live_changes`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change.change_state import refused_by_handover, show_handed_over
from drivetrain.core.change.difference import touched
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.handover import (
    ConfirmFragment,
    Effect,
    FragmentCommitted,
    FragmentInputEnded,
    Handover,
    HandoverBegun,
    HandoverStages,
    ReportHandoverEnd,
)
from drivetrain.errors import UnavailableError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.run.fragment_versions import has_new_messages, note_alone
from drivetrain.spark.run.handover_times import time_of

if TYPE_CHECKING:
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.change_proposal import Proposal, RequestedChange
    from drivetrain.spark.run.fragment_driver import FragmentDriver

_MOST_PAUSE_S: Final = 120.0
"""How long the affected fragments may take to end their batches."""


class Handovers:
    """The handover of an application, if one is under way; `drivers` drive its fragments, by id."""

    def __init__(self, versions: ApplicationVersions, drivers: Mapping[str, FragmentDriver]) -> None:
        self.proven: Final[set[str]] = set()
        """The fragments in which the new version has been seen to work, for the change's trial."""
        self._versions: Final = versions
        self._drivers: Final = drivers
        self._stages: Final = HandoverStages()
        self._unsettled: set[str] = set()  # run the new version alone, not recorded yet
        self._paused_since_s: float | None = None
        self._ended = 0  # the newest version whose handover was over in this process

    @property
    def handover(self) -> Handover | None:
        """The handover that is under way; from any thread."""
        return self._stages.handover

    @property
    def both(self) -> tuple[str, ...]:
        """The fragments that run both versions; from any thread."""
        return self._stages.both

    @property
    def clock_ms(self) -> int | None:
        """The smallest clock of the fragments that run both versions; None while one of them has no clock."""
        clocks = [self._drivers[id].query.settled_clock_ms for id in self.both]
        known = [ms for ms in clocks if ms is not None]
        return min(known) if known and len(known) == len(clocks) else None

    def before(self, fragment: str, number: int) -> int:
        """The other version that a fragment runs together with version `number`; 0: none."""
        handover = self._stages.handover
        if handover is None or handover.number != number or fragment not in self._stages.both:
            return 0
        return handover.before

    # -- for any thread --------------------------------------------------------------------------------

    def refuse_change(self, asked: RequestedChange) -> None:
        """Raise UserError during a handover, unless the change returns to the version before it at once."""
        handover = self._stages.handover
        if handover is None:
            return
        before = self._versions.of_number(handover.before).record
        if before.is_same_graph(asked.record) and asked.options.at is None:
            return
        raise refused_by_handover(handover, self.both)

    # -- for the thread that polls -----------------------------------------------------------------------

    @contextmanager
    def paused(self, proposal: Proposal) -> Iterator[Proposal | None]:
        """The proposal with its time, once no affected fragment runs a batch; None before that: call again.

        Raises HandoverError when the messages are past the time, UnavailableError when batches do not end.
        """
        if proposal.at is None:
            yield proposal
            return
        queries = self._touched(proposal)
        with ExitStack() as held:
            try:
                is_ready = queries is not None and self._hold(queries, held)
                ready = self._timed(proposal) if is_ready else None
                if ready is None:
                    self._refuse_long_pause()
            except BaseException:
                self._release(proposal)
                raise
            try:
                yield ready
            finally:
                if ready is not None:
                    self._release(proposal)

    def _touched(self, proposal: Proposal) -> list[MicroBatchQuery] | None:
        """The queries of the fragments that it touches; None while one of them is started again."""
        drivers = [self._drivers[id] for id in sorted(proposal.change.touched)]
        if any(driver.is_recovering for driver in drivers):
            return None
        queries = [driver.query for driver in drivers if not driver.is_finished]
        return [query for query in queries if isinstance(query, MicroBatchQuery)]

    def _hold(self, queries: list[MicroBatchQuery], held: ExitStack) -> bool:
        """Keep batches from beginning. Returns whether none runs and none has to run again."""
        if any(query.batch_id < query.replay_until for query in queries):
            return False  # a batch from before this process comes first, with its own version
        for query in queries:
            query.is_held = True
        for query in queries:
            if not query.turn.acquire(blocking=False):
                return False
            held.callback(query.turn.release)
        return all(query.is_committed() for query in queries)

    def _refuse_long_pause(self) -> None:
        now_s = time.monotonic()
        self._paused_since_s = self._paused_since_s or now_s
        if now_s - self._paused_since_s > _MOST_PAUSE_S:
            raise UnavailableError(
                "the fragments that change did not end their batches, so that both versions could begin",
                expected=f"within {_MOST_PAUSE_S:.0f} s",
                remedy="nothing has changed; try again when batches are shorter, or use --at now",
            )

    def _release(self, proposal: Proposal) -> None:
        self._paused_since_s = None
        for id in proposal.change.touched:
            query = self._drivers[id].query
            if isinstance(query, MicroBatchQuery):
                query.is_held = False

    def _timed(self, proposal: Proposal) -> Proposal:
        """The proposal with the time at which it takes effect, while nothing runs."""
        loaded, change = proposal.loaded, proposal.change
        assert proposal.at is not None
        at_ms = time_of(self._versions.rundir, self._drivers, loaded, change.touched, proposal.at)
        sets = proposal.sets
        if at_ms != loaded.record.at_ms:
            before = self._versions.of_number(change.before)
            loaded = dataclasses.replace(loaded, record=msgspec.structs.replace(loaded.record, at_ms=at_ms))
            sets = {}
            for id, two in proposal.sets.items():
                query = self._drivers[id].query
                assert isinstance(query, MicroBatchQuery)
                assert two.alone is not None
                sets[id] = self._versions.both(before, loaded, at_ms, two.alone, query)
        return dataclasses.replace(proposal, loaded=loaded, sets=sets)

    def begin(self, record: GraphVersion, of: frozenset[str]) -> None:
        """The version is recorded: from now on the fragments `of` run both."""
        assert record.at_ms is not None
        self._begin(Handover(record.number, record.follows, record.at_ms, of), frozenset())

    def resume(self) -> None:
        """Continue the handover to the version in force; raises InputError if a version cannot be read."""
        record = self._versions.in_force.record
        if record.at_ms is None:
            self._notice_broken_off(record)
            return
        of = touched(self._versions.handing_over(record), record)
        queries = {id: self._drivers[id].query.versions for id in of}
        alone = {id for id, known in queries.items() if known and known.has_run_alone(record.number)}
        self._begin(Handover(record.number, record.follows, record.at_ms, of), frozenset(alone))

    def go_back(self) -> None:
        """A version was rolled back: continue the handover to the one in force, if that is not over."""
        self.withdraw()
        record = self._versions.in_force.record
        if record.at_ms is not None and record.number != self._ended:
            self.resume()

    def _notice_broken_off(self, record: GraphVersion) -> None:
        """Report that the version in force, with which a run began, replaces two that hand over."""
        for id, driver in self._drivers.items():
            versions = driver.query.versions
            noted = None if versions is None else versions.newest_since()
            if (
                record.made_how == "run"
                and noted is not None
                and noted.version < record.number
                and noted.before
            ):
                self._versions.notices.append(
                    f"version {noted.before} was handing over to version {noted.version}; version "
                    f"{record.number}, with which the application was run, takes all messages of {id}"
                )

    def _begin(self, handover: Handover, alone: frozenset[str]) -> None:
        self.proven.clear()
        self._unsettled.clear()
        self._perform(self._stages.step(HandoverBegun(handover, alone)))

    def withdraw(self) -> None:
        """Another version replaces both."""
        self._stages.withdraw()
        self.proven.clear()
        self._unsettled.clear()

    def look(self) -> None:
        """Check the progress of each fragment once."""
        handover = self._stages.handover
        for id in self._stages.both if handover is not None else ():
            driver, query = self._drivers[id], self._drivers[id].query
            if driver.is_finished:
                self._perform(self._stages.step(FragmentInputEnded(id)))
            elif handover is not None and query.versions is not None and not driver.is_recovering:
                has_new = has_new_messages(query, handover)
                self._perform(self._stages.step(FragmentCommitted(id, query.settled_clock_ms, has_new)))
        self._unsettled -= {id for id in self._unsettled if note_alone(self._drivers[id])}

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ConfirmFragment(fragment):
                    self.proven.add(fragment)
                case ReportHandoverEnd(handover):
                    self._ended = handover.number
                    self._versions.notices.append(show_handed_over(handover))
                case _:
                    if effect.fragment not in self._stages.both:
                        self._unsettled.add(effect.fragment)
