"""The versions of an application's graph, in its state directory: those that have run, and their outcomes.

    <state directory>/versions/<number>           a `GraphVersion` as JSON, with a checksum
    <state directory>/versions/<number>.graph     its graph with the user's code, to run it again
    <state directory>/versions/<number>.outcome   how a change of the running application has ended
    <state directory>/versions/<number>.stages    the stages of that change, and when it reached them
    <state directory>/versions/proposed-<id>…     a version that was proposed and is not decided yet
    <state directory>/versions/removing.lock      held while an outcome is amended

Design: the version in force is the newest that was not rolled back. So one file decides each step of a
change: `<number>` puts a version in force, `<number>.outcome` may put the one before in force again. The code
is written before the version. What if we die here: the version is there and nothing has run with it; the next
run finds it, or adds its own.

Invariants:

1. A version that was written is never changed.
2. The version in force is the one that ran last, or was about to run.
3. A version that was rolled back never comes into force again: its graph does, with another number.

Called by `run_directory`, `fragment_roles` and application masters, and by the commands that show and compare
versions.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.difference import difference
from drivetrain.core.change.graph_version import GraphVersion, Made, version_of
from drivetrain.core.plan.plan import Plan
from drivetrain.durable import write_whole, writing
from drivetrain.errors import InputError
from drivetrain.file_lock import FileLock
from drivetrain.private_files import Writers, make_private_directory
from drivetrain.runtime.durable_file import DurableFile, Keep

FOLDER: Final = "versions"
_KEPT: Final = 100
"""How many versions are kept, the newest."""
_OLD_PROPOSAL_S: Final = 3600
_LONGEST_REASON: Final = 20_000
_IF_FULL: Final = "make room, and run the same command again: it continues where it stopped"


HowItLeaves: TypeAlias = Literal["drains", "is discarded", "is deleted"]
"""How a fragment leaves: it processes what it has, it is stopped, or only its files are left to delete."""


class Ending(msgspec.Struct, frozen=True):
    """How a change of the running application to a version has ended, and when (ms since 1970).

    `fragment` is the one that failed, `why` the error as text. `to_remove` are the new sinks of a version
    that was rolled back, whose results are not removed yet. `leaving` are the fragments that have to go and
    are not gone, those that write before those that read.
    """

    outcome: Outcome
    at_ms: int
    fragment: str | None = None
    why: str | None = None
    to_remove: tuple[str, ...] = ()
    leaving: Mapping[str, HowItLeaves] = {}


KeptVersion: TypeAlias = int | Literal["in-force"]
"""A version of the graph whose code was kept: its number, or the one in force."""


class GraphVersions:
    """The versions in the state directory of an application; `writers` may write there.

    `keep` notes elsewhere what decides about a version, just before it is decided here.
    """

    def __init__(self, state: Path, writers: Writers = Writers.OWNER, keep: Keep | None = None) -> None:
        self._directory: Final = state / FOLDER
        self._writers: Final = writers
        self._keep: Final = keep

    # -- reading ---------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """The numbers of the versions that are kept, growing."""
        if not self._directory.is_dir():
            return []
        return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdigit())

    def version(self, number: int) -> GraphVersion:
        """One of the versions; raises InputError when its file is damaged or missing."""
        file = self._file(number)
        version = file.read_json(GraphVersion)
        if version is None:
            raise file.damaged("no such file")
        return version

    def ending(self, number: int) -> Ending | None:
        """How the change to a version has ended; None while it is on trial, and for one that was run.

        Raises InputError when the file is damaged.
        """
        return self._ending_file(number).read_json(Ending)

    def stages(self, number: int) -> tuple[ChangeStage, ...]:
        """The stages that the change to a version has reached, in order; raises InputError when damaged."""
        return self._stages_file(number).read_json(tuple[ChangeStage, ...]) or ()

    def is_rolled_back(self, number: int) -> bool:
        """Whether the application went back from a version; raises InputError when that is damaged."""
        ending = self.ending(number)
        return ending is not None and ending.outcome is Outcome.ROLLED_BACK

    def in_force(self) -> GraphVersion | None:
        """The version that runs, or ran last; None when none is recorded. Raises InputError when damaged."""
        for number in reversed(self.numbers()):
            if not self.is_rolled_back(number):
                return self.version(number)
        return None

    def code(self, number: int) -> bytes | None:
        """The pickled graph of a version; None when it was not kept."""
        try:
            return self._code_file(number).read_bytes()
        except FileNotFoundError:
            return None

    def has_code_of(self, version: GraphVersion) -> bool:
        """Whether a version is the graph in force, and its code is kept: then `note` needs no code."""
        newest = self.last_readable()
        return (
            newest is not None and newest.is_same_graph(version) and self._code_file(newest.number).exists()
        )

    def trial_of(self, record: GraphVersion) -> GraphVersion | None:
        """The version to which the application goes back if `record`, which is in force, fails.

        None when it is not on trial, or there is nothing to go back to. Raises InputError when the outcome is
        damaged.
        """
        if not self.is_on_trial(record):
            return None
        try:
            return self.version(record.follows)
        except InputError:
            return None

    def is_on_trial(self, record: GraphVersion) -> bool:
        """Whether the change to a version has no outcome yet; raises InputError when that is damaged."""
        return record.made_how != "run" and self.ending(record.number) is None

    def to_remove(self) -> dict[int, tuple[str, ...]]:
        """The sinks whose results are still to be removed, by the version that was rolled back.

        Raises InputError when an outcome is damaged.
        """
        endings = {number: self.ending(number) for number in self.numbers()}
        return {
            n: ending.to_remove for n, ending in endings.items() if ending is not None and ending.to_remove
        }

    def refusals(self, plan: Plan) -> str:
        """The processors of a plan that do not fit the existing state, and why, in one line."""
        newest = self.last_readable()
        if newest is None:
            return "a graph; with which one the state was made is not recorded"
        found = difference(newest, version_of(plan, lambda _: ""))
        refused = [f"{change.id}: {change.why}" for change in found.refused]
        while_it_runs = [
            f"{change.id}: fragment {change.fragment} can start or go only while the application runs, by "
            "drivetrain update"
            for change in found.while_it_runs
        ]
        return "; ".join(refused or while_it_runs)

    # -- writing ---------------------------------------------------------------------------------------

    def next_number(self, version: GraphVersion) -> int:
        """The number that `note` will give to a version; one process at a time."""
        return self._number_after(self.last_readable(), version)

    def _number_after(self, newest: GraphVersion | None, version: GraphVersion) -> int:
        if newest is not None and newest.is_same_graph(version):
            return newest.number
        return max(self.numbers(), default=0) + 1

    def note(self, version: GraphVersion, made_how: Made = "run", code: bytes | None = None) -> GraphVersion:
        """Record that a version comes into force, in one step; returns it with its number.

        `code` is its graph. If it is the graph in force already, nothing is written but missing code. One
        process at a time. Raises DiskFullError, and OutputError when it may not be written.
        """
        newest = self.last_readable()
        number = self._number_after(newest, version)
        if newest is not None and number == newest.number:
            if code is not None and not self._code_file(number).exists():
                self._keep_code(number, code)
            return newest
        noted = msgspec.structs.replace(
            version,
            number=number,
            made_at_ms=time.time_ns() // 1_000_000,
            made_by=user_name(),
            made_how=made_how,
            follows=0 if newest is None else newest.number,
        )
        self._make()
        if code is not None:
            self._keep_code(number, code)
        self._file(number).write_kept(msgspec.json.encode(noted), self._keep, FOLDER)
        for old in self.numbers()[:-_KEPT]:
            self._forget(old)
        return noted

    def note_ending(
        self,
        number: int,
        outcome: Outcome,
        fragment: str | None = None,
        why: str | None = None,
        to_remove: tuple[str, ...] = (),
        leaving: Mapping[str, HowItLeaves] | None = None,
    ) -> None:
        """Record how the change to a version has ended, in one step; `why` is cut if it is very long."""
        reason = None if why is None else why[:_LONGEST_REASON]
        now_ms = time.time_ns() // 1_000_000
        ending = Ending(outcome, now_ms, fragment, reason, to_remove, leaving or {})
        self._ending_file(number).write_kept(msgspec.json.encode(ending), self._keep, FOLDER)

    def note_stages(self, number: int, stages: tuple[ChangeStage, ...]) -> None:
        """Record the stages that the change to a version has reached; raises like `note`."""
        self._stages_file(number).write(msgspec.json.encode(stages))

    def note_removed(self, number: int, sink: str | None) -> None:
        """Record that a new sink has no more results to remove; None: that no new sink has any.

        Several processes may do that at the same time, each for the sinks of its fragments.
        """

        def without(ending: Ending) -> Ending:
            left = tuple(id for id in ending.to_remove if sink is not None and id != sink)
            return msgspec.structs.replace(ending, to_remove=left)

        self._amend(number, without)

    def note_leaving(self, number: int, fragment: str, how: HowItLeaves | None) -> None:
        """Record how a fragment leaves that the change to a version removes; None: it is gone.

        Several processes may do that at the same time, each for its fragments.
        """

        def amended(ending: Ending) -> Ending:
            left = {id: known for id, known in ending.leaving.items() if id != fragment}
            if how is not None:
                left = {id: how if id == fragment else known for id, known in ending.leaving.items()}
            return msgspec.structs.replace(ending, leaving=left)

        self._amend(number, amended)

    def _amend(self, number: int, amended: Callable[[Ending], Ending]) -> None:
        """Change the outcome of a version, alone, if there is one."""
        lock = FileLock(self._directory / "removing.lock")
        try:
            lock.wait()
            ending = self.ending(number)
            if ending is not None:
                self._ending_file(number).write(msgspec.json.encode(amended(ending)))
        finally:
            lock.release()

    def leaving(self) -> list[tuple[int, str, HowItLeaves]]:
        """The fragments that have not left yet: the version whose change they leave by, and how.

        Raises InputError when a file is damaged.
        """
        endings = [(number, self.ending(number)) for number in self.numbers()]
        return [
            (number, fragment, how)
            for number, ending in endings
            if ending is not None
            for fragment, how in ending.leaving.items()
        ]

    def has_had(self, id: str) -> bool:
        """Whether a version that is kept and not rolled back has such a processor; raises InputError."""
        return any(
            id in self.version(number).processors
            for number in self.numbers()
            if not self.is_rolled_back(number)
        )

    # -- proposals -------------------------------------------------------------------------------------

    def propose(self, id: str, version: GraphVersion, code: bytes) -> None:
        """Write a proposed version and its code; `id` is hexadecimal. Raises like `note`."""
        self._make()
        with writing("a proposed version", self._directory):
            write_whole(self._directory / f"proposed-{id}.graph", code, synced=False)
            write_whole(self._directory / f"proposed-{id}", msgspec.json.encode(version), synced=False)

    def propose_archive(self, id: str, data: bytes) -> None:
        """Write the archive of a proposed version, whose graph is not made yet. Raises like `note`."""
        self._make()
        with writing("a proposed version", self._directory):
            write_whole(self.proposed_archive(id), data, synced=False)

    def proposed_archive(self, id: str) -> Path:
        """Where `propose_archive` writes the archive of a proposal."""
        return self._directory / f"proposed-{id}.zip"

    def has_proposal(self, id: str) -> bool:
        """Whether the graph of a proposal is there."""
        return (self._directory / f"proposed-{id}").exists()

    def proposal(self, id: str) -> tuple[GraphVersion, bytes]:
        """Read the proposal `id`; raises InputError when it cannot be read."""
        record, code = self._directory / f"proposed-{id}", self._directory / f"proposed-{id}.graph"
        try:
            return msgspec.json.decode(record.read_bytes(), type=GraphVersion), code.read_bytes()
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(
                "a proposed version cannot be read", where=str(record), got=str(error), remedy="try again"
            ) from error

    def withdraw(self, id: str) -> None:
        """Delete a proposal, and old ones that killed commands have left."""
        for ending in ("", ".graph", ".zip"):
            (self._directory / f"proposed-{id}{ending}").unlink(missing_ok=True)
        for left in self._directory.glob("proposed-*"):
            try:
                if time.time() - left.stat().st_mtime > _OLD_PROPOSAL_S:
                    left.unlink()
            except FileNotFoundError:
                continue  # another process has deleted it

    # -- parts -----------------------------------------------------------------------------------------

    def _make(self) -> None:
        with writing("the versions of an application", self._directory):
            make_private_directory(self._directory, "the versions of an application", self._writers)

    def _keep_code(self, number: int, code: bytes) -> None:
        with writing("the code of a version", self._code_file(number), if_full=_IF_FULL):
            write_whole(self._code_file(number), code)

    def _forget(self, number: int) -> None:
        self._file(number).path.unlink(missing_ok=True)
        self._code_file(number).unlink(missing_ok=True)
        self._ending_file(number).path.unlink(missing_ok=True)
        self._stages_file(number).path.unlink(missing_ok=True)

    def last_readable(self) -> GraphVersion | None:
        """The version in force; None if it is damaged: a run can do without it."""
        try:
            return self.in_force()
        except InputError:
            return None

    def _code_file(self, number: int) -> Path:
        return self._directory / f"{number}.graph"

    def _file(self, number: int) -> DurableFile:
        return self._durable(str(number), f"version {number} of an application's graph")

    def _ending_file(self, number: int) -> DurableFile:
        return self._durable(f"{number}.outcome", f"the outcome of version {number}")

    def _stages_file(self, number: int) -> DurableFile:
        return self._durable(f"{number}.stages", f"the history of version {number}")

    def _durable(self, name: str, what: str) -> DurableFile:
        return DurableFile(
            self._directory / name,
            what,
            if_damaged="delete the file: it is needed only to compare versions and to go back",
            if_full=_IF_FULL,
        )


def user_name() -> str:
    """The user who runs this process; empty if the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return ""
