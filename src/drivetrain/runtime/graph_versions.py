"""The versions of an application's graph that have run, in its state directory.

    <state directory>/versions/<number>       a `GraphVersion` as JSON, with a checksum

Design: a version is written when the application begins with it, if it is another one than the newest. What
if we die here: the version is there and nothing has run with it; the next run finds it, or adds its own.

Invariants:

1. A version that was written is never changed.
2. The newest is the one that ran last, or was about to run.

Called by `run_directory`, and by `drivetrain plan --against` and `drivetrain versions`.
"""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.difference import difference
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import InputError
from drivetrain.private_files import Writers, make_private_directory
from drivetrain.runtime.durable import writing
from drivetrain.runtime.durable_file import DurableFile

_KEPT: Final = 100
"""How many versions are kept, the newest."""


class GraphVersions:
    """The versions in the state directory of an application; `writers` may write there."""

    def __init__(self, state: Path, writers: Writers = Writers.OWNER) -> None:
        self._directory: Final = state / "versions"
        self._writers: Final = writers

    def numbers(self) -> list[int]:
        """The numbers of the versions that are kept, growing."""
        if not self._directory.is_dir():
            return []
        return sorted(int(path.name) for path in self._directory.iterdir() if path.name.isdigit())

    def version(self, number: int) -> GraphVersion:
        """One of the versions; raises InputError when its file is damaged or gone."""
        file = self._file(number)
        content = file.read()
        if content is None:
            raise file.damaged("no such file")
        try:
            return msgspec.json.decode(content, type=GraphVersion)
        except msgspec.MsgspecError as error:
            raise file.damaged(str(error)) from error

    def newest(self) -> GraphVersion | None:
        """The version that ran last; None when none is recorded. Raises InputError when it is damaged."""
        numbers = self.numbers()
        return self.version(numbers[-1]) if numbers else None

    def refusals(self, plan: Plan) -> str:
        """The processors of a plan that do not fit the state of the newest version, and why, in one line."""
        newest = self._last_readable()
        if newest is None:
            return "a graph; with which one the state was made is not recorded"
        refused = difference(newest, version_of(plan, lambda _: "")).refused
        return "; ".join(f"{change.id}: {change.why}" for change in refused)

    def note(self, version: GraphVersion) -> GraphVersion:
        """Record that the application begins with a version; returns it with its number.

        One process at a time. Raises DiskFullError, and OutputError when it may not be written.
        """
        newest = self._last_readable()
        if newest is not None and newest.is_same_graph(version):
            return newest
        noted = msgspec.structs.replace(
            version,
            number=max(self.numbers(), default=0) + 1,
            made_at_ms=time.time_ns() // 1_000_000,
            made_by=_user(),
        )
        with writing("the versions of an application", self._directory):
            make_private_directory(self._directory, "the versions of an application", self._writers)
        self._file(noted.number).write(msgspec.json.encode(noted))
        for old in self.numbers()[:-_KEPT]:
            (self._directory / str(old)).unlink(missing_ok=True)
        return noted

    def _last_readable(self) -> GraphVersion | None:
        """The newest version; None if it is damaged: a run does not need it."""
        try:
            return self.newest()
        except InputError:
            return None

    def _file(self, number: int) -> DurableFile:
        return DurableFile(
            self._directory / str(number),
            f"version {number} of an application's graph",
            if_damaged="delete the file: it is needed only to compare versions",
            if_full="make room, and run the same command again: it continues where it stopped",
        )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return ""
