"""Every error that Drivetrain raises on purpose, in one tree.

The branches are by *who must act*:

- `UserError`: the author of the application, the command or the configuration.
- `UnavailableError`: nobody yet; something is temporarily unavailable, and trying again may help.
- `PeerViolationError`: the operator of the other side of a connection; it broke the protocol.
- `InternalError`: us. An invariant does not hold; the error carries the steps that led to it.

Each error has a stable `code` (for scripts and for looking it up), and states in this order what
happened, what was expected and what came instead, and what to do about it (`remedy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class DrivetrainError(Exception):
    """The root: catch this to catch everything that Drivetrain raises on purpose.

    Subclasses set `code`. `expected`, `got` and `remedy` are optional sentences; `where` names the
    operator, file or key that the error is about.
    """

    code: ClassVar[str] = "drivetrain"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"{self.what}" if self.where is None else f"{self.where}: {self.what}"]
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.got is not None:
            lines.append(f"  got: {self.got}")
        if self.remedy is not None:
            lines.append(f"  remedy: {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (Spark workers, executors); the keyword fields must survive.
        return (_rebuild, (type(self), self.__dict__.copy(), self.args))


def _rebuild(
    cls: type[DrivetrainError], state: dict[str, object], args: tuple[object, ...]
) -> DrivetrainError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class UserError(DrivetrainError):
    """The application, the command or the configuration must be changed."""

    code = "user"
    exit_code = 2


class GraphError(UserError):
    """The graph cannot run: a cycle, a loose processor, a duplicate id, a bad type."""

    code = "graph"


class OperatorTypeError(GraphError):
    """An operator's type is missing or wrong; names the operator, its line, expected and got."""

    code = "operator-type"


class ConfigError(UserError):
    """A configuration key is unknown or its value cannot be read."""

    code = "config"


class InputError(UserError):
    """A source cannot be read as declared: missing, empty, malformed, or of the wrong type."""

    code = "input"


class OutputError(UserError):
    """A sink cannot be written: not writable, not ours, or already someone else's."""

    code = "output"


class OperatorError(UserError):
    """A user's function raised while it processed a message.

    `operator` names the processor with its line, `message` is the repr of the message that caused
    it, and `user_traceback` is the user's own traceback without the engine's frames.
    """

    code = "operator"
    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        operator: str,
        message: str | None,
        user_traceback: str,
        remedy: str = "correct the function and run the same command again: it continues where it stopped; "
        "or have "
        'map, async_map, flat_map or filter set such messages aside with on_error="dead_letter"',
    ) -> None:
        super().__init__(what, where=operator, remedy=remedy)
        self.operator = operator
        self.message = message
        self.user_traceback = user_traceback


class UnavailableError(DrivetrainError):
    """Something is temporarily unavailable; trying again may help."""

    code = "unavailable"
    exit_code = 4


class DiskFullError(UnavailableError):
    """The disk that the application writes to is full; nothing incomplete was published."""

    code = "disk-full"


class MissingDependencyError(UserError):
    """A required program or package is not installed; the remedy shows how to get it."""

    code = "missing-dependency"


class PeerViolationError(DrivetrainError):
    """The other side of a connection broke the protocol."""

    code = "peer-violation"
    exit_code = 5


class InternalError(DrivetrainError):
    """An invariant of Drivetrain does not hold: a bug. Carries the steps that led to it."""

    code = "internal"
    exit_code = 70

    def __init__(self, what: str, *, history: Sequence[str] = (), where: str | None = None) -> None:
        super().__init__(
            what,
            where=where,
            remedy="this is a bug in Drivetrain: please report it with the lines above",
        )
        self.history = tuple(history)

    def __str__(self) -> str:
        story = "".join(f"\n  before: {step}" for step in self.history)
        return super().__str__() + story
