"""The status of an application that runs or ran embedded, from one look at its state directory.

Problem: there is no list of runs. An application runs, has ended properly, or its process was killed; and it
may begin or end during a look.

Design: the process that answers at the control socket runs the application, and reports its state. If no
process answers, the last run has recorded its end in `runtime.last_run`; without that record, the run was
killed. One look either queries the socket or reads that file.

Called by `console.embedded.runs`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationView
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.cluster.application_record import ApplicationState
from drivetrain.core.job.job_status import JobState, JobStatus
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.private_files import Writers
from drivetrain.runtime.control_requests import ControlRequest, ask
from drivetrain.runtime.control_socket import NotRunningError
from drivetrain.runtime.last_run import LastRun, read_last_run
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.run_notes import known_in

ANSWER_S: Final = 4.0
"""How long a run may take to say how it is."""
_KILLED: Final = "its process has ended without a report, as one that is killed; drivetrain run continues it"
_STOPPED: Final = "it was stopped; drivetrain run continues it"
_STATES: Final = {
    JobState.FINISHED: ApplicationState.SUCCEEDED,
    JobState.CANCELED: ApplicationState.KILLED,
    JobState.FAILED: ApplicationState.FAILED,
}


@dataclass(frozen=True)
class EmbeddedStatus:
    """An application as it was at one look; `last` is the end of its last run, if it does not run."""

    rundir: RunDirectory
    state: ApplicationState
    began_ms: int
    status: JobStatus | None = None
    last: LastRun | None = None
    version: int = 0
    why: str | None = None

    @property
    def app_id(self) -> str:
        """The id: the name, and a few digits of the settings."""
        return self.rundir.app_id

    @property
    def ended_ms(self) -> int | None:
        """When it has ended, if that is known."""
        return None if self.last is None else self.last.status.now_ms

    def in_epoch(self, epoch: int) -> EmbeddedStatus:
        """The same, as the status of the run of this number."""
        if self.status is None:
            return self
        return dataclasses.replace(self, status=msgspec.structs.replace(self.status, epoch=epoch))

    @property
    def view(self) -> ApplicationView:
        """The application as a cluster would describe it: it has no code and no processes to start."""
        rundir = self.rundir
        spec = ApplicationSpec(
            rundir.application,
            code="",
            file="",
            settings={name: str(value) for name, value in rundir.settings.items()},
            config={
                run_keys.STATE_DIR.name: str(rundir.path.parent),
                run_keys.WRITERS.name: rundir.writers.value,
            },
        )
        return ApplicationView(
            app_id=self.app_id,
            spec=spec,
            state=self.state,
            epoch=1,
            submitted_ms=self.began_ms,
            ended_ms=self.ended_ms,
            why=self.why,
            clock_ms=None if self.status is None else self.status.clock_ms,
            graph_version=self.version,
        )


def look_at(directory: Path, writers: Writers) -> EmbeddedStatus:
    """Look at the application whose state is in `directory`; a state that cannot be read is its failure."""
    began_ms = int(directory.stat().st_mtime * 1000)
    try:
        notes = known_in(directory)
        rundir = RunDirectory(str(directory.parent), notes["application"], notes["settings"], writers)
        if rundir.path != directory.resolve():
            raise _not_its_own(directory, rundir)
    except (DrivetrainError, KeyError, TypeError) as error:
        shown = RunDirectory(str(directory.parent), directory.name.rpartition("-")[0], {}, writers)
        shown.app_id, shown.path = directory.name, directory.resolve()
        return EmbeddedStatus(
            shown, ApplicationState.FAILED, began_ms, why=f"its state cannot be read: {error}"
        )
    try:
        answer = ask(rundir, ControlRequest("status"), ANSWER_S)
    except NotRunningError:
        return _ended(rundir, began_ms, has_finished=notes.get("finished") is not None)
    except DrivetrainError as error:  # too busy, or of another version
        return EmbeddedStatus(rundir, ApplicationState.ACTIVE, began_ms, why=error.what)
    status = answer.status
    assert status is not None, "a run that does not say how it is"
    version = 0 if answer.state is None else answer.state.version
    return EmbeddedStatus(rundir, ApplicationState.ACTIVE, status.started_ms, status, version=version)


def _ended(rundir: RunDirectory, began_ms: int, *, has_finished: bool) -> EmbeddedStatus:
    try:
        last = read_last_run(rundir.path)
    except DrivetrainError as error:
        return EmbeddedStatus(rundir, ApplicationState.FAILED, began_ms, why=str(error))
    if last is None:
        if has_finished:
            return EmbeddedStatus(rundir, ApplicationState.SUCCEEDED, began_ms)
        return EmbeddedStatus(rundir, ApplicationState.KILLED, began_ms, why=_KILLED)
    status = last.status
    state = _STATES.get(status.state, ApplicationState.KILLED)
    ended_by = status.error
    why = _STOPPED if state is ApplicationState.KILLED else None if ended_by is None else ended_by.what
    return EmbeddedStatus(rundir, state, status.started_ms, status, last, last.version, why)


def _not_its_own(directory: Path, rundir: RunDirectory) -> UnavailableError:
    return UnavailableError(
        "the records in this directory belong to another application", where=str(directory), got=rundir.app_id
    )
