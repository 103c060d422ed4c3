"""Counts the lines that match a pattern in files, on as many executors as asked for: input splits at work.

    drivetrain submit examples/distributed_grep.py --set input="logs/*.txt" --set pattern=ERROR --attached

Each file is a split. Executors pull one at a time, so a fast one reads more; the files of one that dies go
back to the pool and are read again, so every file counts once.
"""

from __future__ import annotations

import asyncio
import glob
import re
from pathlib import Path
from typing import ClassVar

import msgspec

from drivetrain.actor import Message
from drivetrain.cluster.app_master import ApplicationMaster, CustomExecutor, Member
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import ErrorView, JobState, JobStatus
from drivetrain.cluster.messages.registration import AppMasterRegistered
from drivetrain.core.job.splits import Answer, Split, SplitAssigner


class NextFile(Message, frozen=True, tag="grep.next-file"):
    """Asks for a file; says what the one before held (`number` -1: there was none)."""

    executor_id: str
    number: int
    matches: int
    error: str | None = None


class File(Message, frozen=True, tag="grep.file"):
    """A file to read; None when there is none now: ask again."""

    number: int
    path: str | None
    pattern: str


class GrepExecutor(CustomExecutor):
    """Asks for a file, reads it, says what it found, asks for the next."""

    def ready(self) -> None:
        self.app_master.tell(NextFile(self.setup.id, -1, 0), self.context.me)

    async def received(self, message: Message) -> None:
        match message:
            case File(_, None):
                await asyncio.sleep(0.3)
                self.ready()
            case File(number, path, pattern) if path is not None:
                try:
                    found = await self.context.blocking(count_matches, path, pattern)
                except OSError as error:
                    self.app_master.tell(NextFile(self.setup.id, number, 0, str(error)), self.context.me)
                else:
                    self.app_master.tell(NextFile(self.setup.id, number, found), self.context.me)


def count_matches(path: str, pattern: str) -> int:
    wanted = re.compile(pattern)
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        return sum(wanted.search(line) is not None for line in lines)


class Grep(ApplicationMaster):
    """Hands out files until each was read once."""

    executor = GrepExecutor
    settings: ClassVar[dict[str, str]] = {"input": "", "pattern": "", "readers": "2"}

    def started(self, registered: AppMasterRegistered) -> None:
        paths = sorted(glob.glob(self.setting("input")))
        self.splits = SplitAssigner(Split(n, str(Path(path).resolve())) for n, path in enumerate(paths))
        self.matches = 0
        self.hosts: dict[str, str] = {}
        if not paths:
            error = ErrorView("input", "no file matches", self.setting("input"), remedy="--set input=PATTERN")
            self.end(ApplicationState.FAILED, error)
        for _ in range(min(int(self.setting("readers")), len(paths))):
            self.want_executor()

    def executor_joined(self, member: Member) -> None:
        self.hosts[member.id] = member.host
        self.splits.begin((member.id, 1))

    def executor_lost(self, member: Member, why: str) -> None:
        self.splits.fail((member.id, 1))

    def received(self, message: Message) -> None:
        match message:
            case NextFile(error=error) if error is not None:
                self.end(ApplicationState.FAILED, ErrorView("input", error, remedy="check the file"))
            case NextFile(executor_id, number, matches):
                attempt = (executor_id, 1)
                if number >= 0 and self.splits.complete(attempt, number):
                    self.matches += matches
                    self.changed()
                if self.splits.is_done:
                    self.end(ApplicationState.SUCCEEDED)
                    return
                match self.splits.next(attempt, self.hosts.get(executor_id)):
                    case Split(number, path):
                        self.context.reply(File(number, path, self.setting("pattern")))
                    case Answer.NO_MORE:  # until another reader has failed
                        self.context.reply(File(-1, None, ""))
                    case Answer.UNKNOWN_ATTEMPT:
                        self.stop_executor(executor_id, "it was given up before")
            case _:
                self.context.unhandled(message)

    def status(self) -> JobStatus:
        found = getattr(self, "matches", 0)
        base = self.base_status(JobState.RUNNING)
        return msgspec.structs.replace(
            base, accumulators={"matches": found}, printed=f"{found} lines match\n"
        )
