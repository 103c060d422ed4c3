"""Runs a program that loads code or states of users, in a process of its own with limits.

Problem: a file, or a state, of a user may loop, take all memory, end its process or print when it is loaded;
and it can read the environment.

Design: the console starts `python -m PROGRAM DIRECTORY` with an environment of its choice, in a session of
its own, and ends it after a timeout. The process limits itself before it loads anything of the user's, and
ends when the console does. The request and the outcome are files: the standard streams are the user's.

Invariants:

1. When `run` has returned, its process and the processes that this has started are gone.
2. Nothing of the environment reaches a process but `PASSED_ON` and what the caller names.

Called by `console.planning.planning` and `console.state_reading`, which start processes, and by
`console.planning.program` and `cli.inspection.state_process`, which are such processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.cluster.client import error_of_view
from drivetrain.cluster.parent import PARENT_VARIABLE, tie_to_parent
from drivetrain.console.planning.requests import OUTCOME, REQUEST, Outcome
from drivetrain.durable import write_whole
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.private_files import private
from drivetrain.runtime.error_views import error_view

LARGEST_OUTCOME_BYTES: Final = 64 * 2**20
CPU_S: Final = 120
MEMORY_BYTES: Final = 4 * 2**30
FILE_BYTES: Final = 512 * 2**20

PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "TMPDIR", "TZ", "VIRTUAL_ENV")


# ---- in the console


async def run(
    program: str,
    asked: msgspec.Struct,
    directory: Path,
    timeout_s: float,
    *,
    is_late: UserError,
    without_answer: str,
    passed_on: Iterable[str] = (),
) -> Outcome:
    """The outcome of a program; raises the error that it ended with, or `is_late` after the timeout.

    `without_answer` is the remedy when the process ends without an outcome.
    """
    with open(directory / REQUEST, "wb", opener=private) as file:
        file.write(msgspec.json.encode(asked))
    with open(directory / "log", "wb", opener=private) as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # files in the current directory hide no package
            "-m",
            program,
            str(directory),
            env=_environment((*PASSED_ON, *passed_on)),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError as error:
        raise is_late from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return _outcome(directory, process.returncode, without_answer)


def _outcome(directory: Path, status: int | None, without_answer: str) -> Outcome:
    path = directory / OUTCOME
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST_OUTCOME_BYTES:
        raise UserError(
            "the process that the console started for this application ended without an answer",
            got=f"exit code {status}; it wrote\n{_end_of(directory / 'log')}",
            remedy=without_answer,
        )
    try:
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except msgspec.MsgspecError as error:
        raise UserError("the answer of the application's process cannot be read", got=str(error)) from error
    if outcome.error is not None:
        raise error_of_view(outcome.error)
    return outcome


def _end_of(log: Path, most_bytes: int = 2_000) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - most_bytes))
        return file.read().decode(errors="replace")


def _environment(names: Iterable[str]) -> dict[str, str]:
    passed = {name: os.environ[name] for name in names if name in os.environ}
    return {**passed, PARENT_VARIABLE: str(os.getpid())}


# ---- in the process


def serve(answer: Callable[[Path, bytes], Outcome], *, too_large: str) -> None:
    """Write what `answer` makes of the request in the directory of the command line, and end the process.

    `too_large` names in an error what took too much memory.
    """
    directory = Path(sys.argv[1])
    tie_to_parent()
    _limit()
    try:
        outcome = answer(directory, (directory / REQUEST).read_bytes())
    except DrivetrainError as error:
        outcome = Outcome(error=error_view(error))
    except MemoryError as error:
        full = UserError(
            f"{too_large} takes too much memory while it is loaded",
            expected=f"at most {MEMORY_BYTES >> 30} GiB",
            got=str(error) or "more",
            remedy="read data in the application's functions, not while the graph is built",
        )
        outcome = Outcome(error=error_view(full))
    write_whole(directory / OUTCOME, msgspec.json.encode(outcome), synced=False)
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads that the user's file has started


def _limit() -> None:
    for limit, most in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hardest = resource.getrlimit(limit)
        allowed = most if hardest == resource.RLIM_INFINITY else min(most, hardest)
        resource.setrlimit(limit, (allowed, allowed))
