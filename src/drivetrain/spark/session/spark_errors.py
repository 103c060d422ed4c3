"""Errors on their way through Spark: packed where they are raised, unpacked where they are reported.

Spark turns any worker's exception into a page of Java and Python stack traces. A Drivetrain error is
therefore packed into one marked token inside the message of a plain exception; the engine finds the token in
Spark's report and restores the original error with its typed fields. Spark's own errors are translated if
their remedy is known, and shortened to their first lines otherwise.

Only classes of Drivetrain's own error tree are rebuilt, from JSON: nothing is unpickled.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from drivetrain.config.references import scrub, scrubbed
from drivetrain.durable import is_full, means_full
from drivetrain.errors import (
    DiskFullError,
    DrivetrainError,
    GraphError,
    InternalError,
    OperatorTypeError,
    UnavailableError,
    UserError,
)

_TOKEN = re.compile(r"⟦drivetrain:([A-Za-z0-9+/=]+)⟧")
_UNSHIPPABLE = ("PicklingError", "cannot pickle", "Could not serialize object")
_NOISE = re.compile(
    r"\s*(at |\.\.\. \d+ more|JVM stacktrace|== SQL|Caused by)"  # Java's stack
    r"|[ :|]*[+:]- |'[A-Z]\w*|[A-Z]\w* .*#\d+"  # Spark's plan
)
_STATE = (
    "CANNOT_LOAD_STATE_STORE",
    "CANNOT_READ_STATE",
    "FAILED_TO_LOAD_STATE",
    "STATE_STORE_",
    "org.rocksdb.RocksDBException",
    "org.apache.hadoop.fs.ChecksumException",
)
"""Parts of Spark's reports when files of its own checkpoint are damaged."""
_PYTHON_GONE = (
    "Python worker exited unexpectedly",
    "Broken pipe",
    "java.io.EOFException",
    "Connection reset",
)
"""Parts of Java's reports when the Python process at the other end of a connection is gone."""
_PYTHON_LATE = "Python worker failed to connect back"
"""Part of Java's report when a Python process that it started did not connect in time."""


class StateDamagedError(UserError):
    """Spark's state of a fragment cannot be read."""

    code = "state-damaged"


class EmbeddedError(RuntimeError):
    """A plain exception whose message carries a `DrivetrainError` across Spark."""


def embedded(error: DrivetrainError) -> EmbeddedError:
    """`error` as an exception that can pass through Spark; raise it in workers."""
    scrub(error)
    body = {"class": type(error).__name__, "fields": {k: v for k, v in vars(error).items() if k != "args"}}
    packed = base64.b64encode(json.dumps(body, default=str).encode()).decode()
    # Workers send text as UTF-8, which has no lone surrogates.
    text = str(error).encode(errors="backslashreplace").decode()
    return EmbeddedError(f"⟦drivetrain:{packed}⟧ {text}")


def recovered(text: str) -> DrivetrainError | None:
    """The `DrivetrainError` that was embedded in Spark's report, if there is one."""
    found = _TOKEN.search(text)
    if found is None:
        return None
    body = json.loads(base64.b64decode(found.group(1)))
    cls = _known(body["class"])
    error = cls.__new__(cls)
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in body["fields"].items()}
    error.__dict__.update(fields)
    error.args = (body["fields"].get("what", ""),)
    return error


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the `DrivetrainError` that is embedded in an error of Spark, if there is one, in its place."""
    try:
        yield
    except Exception as error:
        ours = None if isinstance(error, DrivetrainError) else recovered(str(error))
        if ours is None:
            raise
        raise ours from error


def translated(error: BaseException, where: str | None = None) -> DrivetrainError:
    """The user's error for `error`, which Spark (or Drivetrain) raised while `where` was running."""
    if isinstance(error, DrivetrainError):
        return error
    text = f"{_cause_left_out(error)}{error}\n{error.__cause__ or ''}"
    ours = recovered(text)
    if ours is not None:
        return ours
    if is_full(error) or means_full(text):
        return DiskFullError(
            "the disk is full",
            where=where,
            remedy="free some space and run the same command again: it continues where it stopped",
        )
    if any(sign in text for sign in _STATE):
        return StateDamagedError(
            "Spark's state of the fragment cannot be read",
            where=where,
            got=_short(text),
            remedy="put the state directory back from a backup, start from a savepoint, or start over with "
            "--fresh; with checkpoint.mode=on the application goes back to its last checkpoint automatically",
        )
    if any(sign in text for sign in _UNSHIPPABLE):
        return GraphError(
            "a function cannot be sent to Spark's workers",
            where=where,
            got=_short(text),
            remedy="a function may not refer to locks, files, connections or the Spark session: "
            "create them inside it",
        )
    trace = str(getattr(error, "_stackTrace", "") or "")  # an EOFException of Java has no message
    if any(sign in text or sign in trace for sign in _PYTHON_GONE):
        return UnavailableError(
            "a Python process of Spark has ended before its work was done",
            where=where,
            got=_short(text),
            remedy="run the same command again: it continues where it stopped; if it happens again, check "
            "whether memory ran out, or whether one of your libraries ends the process",
        )
    if _PYTHON_LATE in text:
        return UnavailableError(
            "a Python process of Spark did not start in time",
            where=where,
            got=_short(text),
            remedy="run the same command again: it continues where it stopped; if it happens again, the "
            "machine is overloaded: run fewer processes on it, or give Spark fewer cores (spark.master)",
        )
    return UserError(
        "Spark could not run this",
        where=where,
        got=_short(text),
        remedy="correct the expression or the data and run the same command again: "
        "it continues where it stopped",
    )


def _cause_left_out(error: BaseException) -> str:
    """The message of the first exception in Java, if Spark's report does not contain it."""
    cause: Any = getattr(error, "_cause", None)
    while getattr(cause, "_cause", None) is not None:
        cause = cause._cause
    text = "" if cause is None else str(cause).strip()
    return "" if not text or text.splitlines()[0] in str(error) else f"{text}\n"


@contextmanager
def refusals_named(where: str) -> Iterator[None]:
    """Turn Spark's complaint about the operator `where`, which the block builds, into a Drivetrain error."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise analysis_error(error, where) from error
        raise


def analysis_error(error: BaseException, where: str) -> DrivetrainError:
    """The user's error when Spark's analyzer refuses an operator."""
    ours = recovered(str(error))
    if ours is not None:
        return ours
    if isinstance(error, PySparkException) and (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        named = error.getMessageParameters() or {}
        column, known = named.get("objectName", "").strip("`"), named.get("proposal", "").replace("`", "")
        known = ", ".join(c for c in known.split(", ") if c and c != "window" and not c.startswith("__"))
        return OperatorTypeError(
            f"there is no column {column!r}",
            where=where,
            expected=f"one of {known}" if known else None,
            got=column,
            remedy="correct the name; `drivetrain plan` shows the columns that every operator has",
        )
    return OperatorTypeError(
        "Spark cannot run this operator on its input",
        where=where,
        got=_short(str(error)),
        remedy="`drivetrain plan` shows the columns that every operator has",
    )


def _known(name: str) -> type[DrivetrainError]:
    stack: list[type[DrivetrainError]] = [DrivetrainError]
    while stack:
        cls = stack.pop()
        if cls.__name__ == name:
            return cls
        stack += cls.__subclasses__()
    raise InternalError(f"an unknown error came through Spark: {name}")


def _short(text: str, lines: int = 4) -> str:
    """The first lines of Spark's report, without Java's stack."""
    kept = [line.rstrip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
    return scrubbed("\n    ".join(kept[:lines]))
