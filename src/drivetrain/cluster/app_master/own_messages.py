"""What an application master is given, and what it says to itself.

Called by the modules of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from drivetrain.actor import Message
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.config import Config


@dataclass(frozen=True)
class Setup:
    """What an application master is given: who it is, and the world. `clock_ms` is a wall clock."""

    app_id: str
    epoch: int
    spec: ApplicationSpec
    masters: Sequence[str]
    config: Config
    code_directory: str
    clock_ms: Callable[[], int]
    log: Callable[[str], None] = field(default=lambda line: None)


class Beat(Message, frozen=True, tag="dt.local.app.beat"):
    """Time has passed."""


class Wake(Message, frozen=True, tag="dt.local.app.wake"):
    """A delay is over; `what` says which."""

    what: str
    number: int = 0


class Answered(Message, frozen=True, tag="dt.local.app.answered"):
    """What came of a request: an answer, or the code of a failure and why."""

    what: str
    number: int
    answer: Message | None = None
    code: str = ""
    why: str = ""


class Call(Message, frozen=True, tag="dt.local.app.call"):
    """Something to do when its turn comes."""

    action: Callable[[], None]
