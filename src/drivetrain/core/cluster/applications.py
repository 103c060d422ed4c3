"""The applications that a cluster knows: what may happen to a record, and when.

Problem. Requests about applications come twice (a client that lost an answer), late (an application master
that was replaced), and at the same time (two submissions of one name). The registry must stay right under all
of them, and through every change of leader.

Design. An application is one immutable record. `ApplicationRegistry` holds all of them; its methods return
the record that an event leads to, which the registry already contains; the caller makes it durable before it
answers anyone. `TRANSITIONS` lists what each event does to a state; every other event is refused
(`RefusedError`) and changes nothing. Each start of an application master has the record's next *epoch*;
requests in the name of an older epoch are refused. Deaths of application masters are counted within a window;
one too many ends it.

Invariants:
1. Of live applications no two have the same name.
2. An id is never used again; a submission has one id, however often it comes.
3. The epoch of a record never decreases; requests for an epoch that was not launched, or was declared dead,
   are refused.
4. A record that is over has an end, and a live record has none.
5. An application is started with what was submitted, until a report of the current epoch replaces that
   (`--fresh` takes effect once), or a restart does (a replay).

Called by `drivetrain.cluster.master.applications.application_manager`.
Source: Gearpump's AppManager; epochs as fencing tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from drivetrain.core.cluster.application_record import (
    TRANSITIONS,
    ApplicationRecord,
    ApplicationState,
    RecordEvent,
    RefusedError,
)
from drivetrain.core.cluster.record_limits import RecordLimits, cut
from drivetrain.errors import InternalError


class ApplicationRegistry:
    """All records, keyed by id; `max_deaths` within `window_ms` are tolerated, one more is the end."""

    def __init__(
        self,
        records: Iterable[ApplicationRecord] = (),
        *,
        last_number: int = 0,
        max_deaths: int,
        window_ms: int,
        limits: RecordLimits | None = None,
    ) -> None:
        self._records: dict[str, ApplicationRecord] = {record.app_id: record for record in records}
        self._last_number = last_number
        self._max_deaths: Final = max_deaths
        self._window_ms: Final = window_ms
        self._limits: Final = limits or RecordLimits()
        self._last_end = max((record.end for record in self._records.values()), default=0)
        self._by_submission = {r.submission_id: r.app_id for r in self._records.values()}
        self._live = {r.name: r.app_id for r in self._records.values() if not r.state.is_over}

    @property
    def records(self) -> Mapping[str, ApplicationRecord]:
        """Every record, by id."""
        return MappingProxyType(self._records)

    @property
    def last_number(self) -> int:
        """The highest number used for an id; store it with the records."""
        return self._last_number

    def find(self, app: str) -> ApplicationRecord:
        """The record with this id, or the live one of this name, else the newest. Raises `RefusedError`."""
        record = self._records.get(app) or self._records.get(self._live.get(app, ""))
        if record is None:
            named = [each for each in self._records.values() if each.name == app]
            record = max(named, key=lambda each: number_of(each.app_id), default=None)
        if record is None:
            raise RefusedError(
                f"there is no application {app!r}",
                reason="unknown-application",
                remedy="drivetrain apps lists them",
            )
        return record

    def newest_first(self, before: int | None = None) -> list[ApplicationRecord]:
        """The records in the order of their ids' numbers, only those below `before` if it is given."""
        numbered = ((number_of(app_id), record) for app_id, record in self._records.items())
        wanted = [(number, record) for number, record in numbered if before is None or number < before]
        return [record for _, record in sorted(wanted, key=lambda each: each[0], reverse=True)]

    # ---- events

    def submit(
        self, submission_id: str, name: str, spec: bytes, code: str, now_ms: int
    ) -> tuple[ApplicationRecord, bool]:
        """Accept a submission; returns its record, and whether it is new. Raises `RefusedError`."""
        known = self._by_submission.get(submission_id)
        if known is not None:
            return self._records[known], False
        self._require_free(name)
        self._require_small(name, spec, submission_id)
        self._last_number += 1
        record = ApplicationRecord(
            f"{name}-{self._last_number}",
            name,
            submission_id,
            spec,
            code,
            ApplicationState.PENDING,
            0,
            now_ms,
            why="its application master is not started yet",
        )
        return self._put(record), True

    def launch(self, app_id: str, launch_id: str, worker_id: str, worker: str) -> ApplicationRecord:
        """The next application master is to be started there: a new epoch."""
        record = self._after(app_id, RecordEvent.LAUNCH, ApplicationState.PENDING)
        return self._put(
            msgspec.structs.replace(
                record,
                epoch=record.epoch + 1,
                launch_id=launch_id,
                worker_id=worker_id,
                worker=worker,
                why=f"its application master is starting on {worker}",
            )
        )

    def register(self, app_id: str, epoch: int) -> ApplicationRecord:
        """The application master of an epoch has registered. Raises `RefusedError` for another epoch."""
        self._require_epoch(app_id, epoch)
        record = self._after(app_id, RecordEvent.REGISTER, ApplicationState.ACTIVE)
        return self._put(msgspec.structs.replace(record, state=ApplicationState.ACTIVE, why=None))

    def report(
        self,
        app_id: str,
        epoch: int,
        state: ApplicationState,
        now_ms: int,
        *,
        clock_ms: int | None,
        graph_version: int,
        why: str | None,
        result: bytes | None,
        restarts: bytes | None,
        spec: bytes | None = None,
        replayed_from_ms: int | None = None,
    ) -> ApplicationRecord:
        """Take an application master's report; the start clock and the graph version never go back.

        `spec`, if given, is what the application is started with from now on; `replayed_from_ms` means that
        its state has begun a new life, whose clock begins there, wherever the previous one was. A repeated
        report after the end has no effect. Raises `RefusedError` for another epoch.
        """
        record = self._require_epoch(app_id, epoch)
        if record.state.is_over and record.state is state:
            return record
        if result is not None and len(result) > self._limits.result_bytes:
            lost = f"its last status is not kept, as it has {len(result)} bytes"
            result, why = None, lost if why is None else f"{why}; {lost}"
        if restarts is not None and len(restarts) > self._limits.restarts_bytes:
            restarts = None
        if state is ApplicationState.PENDING:
            state = record.state
            if state.is_over:
                raise self._illegal(record, RecordEvent.REPORT)
        else:
            self._after(app_id, RecordEvent.REPORT, state)
        before_ms = record.clock_ms if replayed_from_ms is None else replayed_from_ms
        clocks = [clock for clock in (before_ms, clock_ms) if clock is not None]
        return self._put(
            msgspec.structs.replace(
                record,
                spec=record.spec if spec is None else spec,
                state=state,
                ended_ms=now_ms if state.is_over else None,
                clock_ms=max(clocks, default=None),
                graph_version=max(record.graph_version, graph_version),
                why=cut(why),
                result=record.result if result is None else result,
                restarts=record.restarts if restarts is None else restarts,
            )
        )

    def die(
        self, app_id: str, epoch: int, why: str, now_ms: int, *, counts: bool = True
    ) -> ApplicationRecord:
        """The application master of an epoch died before the application's end: start another, or give up.

        With `counts` false it was moved, as its worker was asked to end: that is no failure. Raises
        `RefusedError` when that epoch is no longer the current one.
        """
        record = self._require_epoch(app_id, epoch)
        # A death in the future was recorded before the clock was set back: its age is unknown.
        recent = tuple(at for at in record.deaths_ms if now_ms - self._window_ms < at <= now_ms)
        deaths = (*recent, now_ms) if counts else recent
        why = cut(why) or ""
        is_over = len(deaths) > self._max_deaths
        state = ApplicationState.FAILED if is_over else ApplicationState.PENDING
        self._after(app_id, RecordEvent.DIE, state)
        if is_over:
            why = (
                f"{why}; that was failure {len(deaths)} of an application master within {self._window_ms} ms"
            )
        return self._put(
            msgspec.structs.replace(
                record,
                state=state,
                why=why,
                deaths_ms=deaths,
                ended_ms=now_ms if is_over else None,
                launch_id=None,
                worker_id=None,
                worker=None,
            )
        )

    def kill(self, app: str, now_ms: int) -> ApplicationRecord:
        """End an application. Raises `RefusedError` when it does not exist or is over."""
        record = self.find(app)
        if record.state.is_over:
            raise RefusedError(
                f"{record.app_id} is {record.state.value} already",
                reason="already-over",
                remedy="drivetrain apps lists the applications",
            )
        self._after(record.app_id, RecordEvent.KILL, ApplicationState.KILLED)
        return self._put(
            msgspec.structs.replace(
                record, state=ApplicationState.KILLED, ended_ms=now_ms, why="killed by a user"
            )
        )

    def restart(self, app: str, *, spec: bytes | None = None) -> ApplicationRecord:
        """Start an application again under its id, whatever its state. Raises `RefusedError`.

        Its epoch goes up immediately, so requests of its earlier application masters are refused. `spec`, if
        given, is what it is started with from now on.
        """
        record = self.find(app)
        if record.state.is_over:
            self._require_free(record.name)
        if spec is not None:
            self._require_small(record.name, spec, record.submission_id)
        self._after(record.app_id, RecordEvent.RESTART, ApplicationState.PENDING)
        return self._put(
            msgspec.structs.replace(
                record,
                spec=record.spec if spec is None else spec,
                state=ApplicationState.PENDING,
                epoch=record.epoch + 1,
                ended_ms=None,
                result=None,
                restarts=None,
                launch_id=None,
                worker_id=None,
                worker=None,
                deaths_ms=(),
                why="it is being restarted",
            )
        )

    def surplus(self, keep: int) -> list[ApplicationRecord]:
        """Forget all ended applications but the newest `keep`; returns the forgotten ones."""
        over = [record for record in self._records.values() if record.state.is_over]
        over.sort(key=lambda record: (record.end, number_of(record.app_id)))
        gone = over[: max(0, len(over) - keep)]
        for record in gone:
            del self._records[record.app_id]
            self._by_submission.pop(record.submission_id, None)
        return gone

    def check(self) -> None:
        """Verify the invariants; raise `InternalError` naming the first broken."""
        live = [record for record in self._records.values() if not record.state.is_over]
        if len({record.name for record in live}) != len(live):
            raise InternalError("invariant 1: two live applications have the same name")
        if {record.name: record.app_id for record in live} != self._live:
            raise InternalError("invariant 1: the table of names is not that of the live applications")
        if any(number_of(app_id) > self._last_number for app_id in self._records):
            raise InternalError("invariant 2: an id above the last number")
        for record in self._records.values():
            if record.state is ApplicationState.ACTIVE and record.epoch == 0:
                raise InternalError(f"invariant 3: {record.app_id} is active in epoch 0")
            if record.state.is_over != (record.ended_ms is not None):
                raise InternalError(f"invariant 4: {record.app_id} is {record.state.value}")

    # ---- internals

    def _require_free(self, name: str) -> None:
        holder = self._live.get(name)
        if holder is not None:
            raise RefusedError(
                f"a live application has the name {name!r}: {holder}",
                reason="name-taken",
                remedy="choose another name, or kill it first",
            )

    def _require_small(self, name: str, spec: bytes, submission_id: str) -> None:
        most = self._limits.spec_bytes
        size = len(spec) + len(submission_id.encode())
        if size > most:
            raise RefusedError(
                f"the specification of {name!r} has {size} bytes; the masters keep at most {most}",
                reason="too-large",
                remedy="put large settings into a file, and pass the file's name",
            )

    def _require_epoch(self, app_id: str, epoch: int) -> ApplicationRecord:
        record = self._records.get(app_id)
        if record is None or record.epoch != epoch or record.launch_id is None:
            newest = "unknown" if record is None else f"in epoch {record.epoch}, {record.why}"
            raise RefusedError(
                f"epoch {epoch} of {app_id} is not current: it is {newest}", reason="stale-epoch"
            )
        return record

    def _after(self, app_id: str, happening: RecordEvent, state: ApplicationState) -> ApplicationRecord:
        record = self._records.get(app_id)
        if record is None:
            raise RefusedError(f"there is no application {app_id!r}", reason="unknown-application")
        if state not in TRANSITIONS.get((record.state, happening), ()):
            raise self._illegal(record, happening)
        return record

    def _illegal(self, record: ApplicationRecord, happening: RecordEvent) -> RefusedError:
        return RefusedError(
            f"{record.app_id} is {record.state.value}: it cannot be that it {happening.value}",
            reason="stale-epoch",
        )

    def _put(self, record: ApplicationRecord) -> ApplicationRecord:
        before = self._records.get(record.app_id)
        if record.state.is_over and not (before is not None and before.state.is_over):
            self._last_end += 1
            record = msgspec.structs.replace(record, end=self._last_end)
        self._records[record.app_id] = record
        self._by_submission[record.submission_id] = record.app_id
        if not record.state.is_over:
            self._live[record.name] = record.app_id
        elif self._live.get(record.name) == record.app_id:
            del self._live[record.name]
        return record


def number_of(app_id: str) -> int:
    """The number in an application's id, which is higher than that of any id before."""
    return int(app_id.rsplit("-", 1)[1])
