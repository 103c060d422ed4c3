"""The parameters of an application master, and its messages to itself.

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
    """The parameters of an application master: its identity and surroundings. `clock_ms` is a wall clock.

    All of its executors run on the worker `together_on`, with slots that the launch of the application master
    holds; None: they run on any worker, with slots of their own. `submission` is that of its launch.
    """

    app_id: str
    epoch: int
    spec: ApplicationSpec
    masters: Sequence[str]
    config: Config
    code_directory: str
    clock_ms: Callable[[], int]
    log: Callable[[str], None] = field(default=lambda line: None)
    together_on: str | None = None
    submission: str = ""


class Tick(Message, frozen=True, tag="dt.local.app.beat"):
    """Time has passed."""


class HandOverRequested(Message, frozen=True, tag="dt.local.app.hand-over"):
    """From the process: it was asked to end, and another application master continues elsewhere."""

    why: str


class Wake(Message, frozen=True, tag="dt.local.app.wake"):
    """The delay named `what` is over."""

    what: str
    number: int = 0


class AskOutcome(Message, frozen=True, tag="dt.local.app.answered"):
    """The outcome of a request: an answer, or the code of a failure and its reason."""

    what: str
    number: int
    answer: Message | None = None
    code: str = ""
    why: str = ""


class RunAction(Message, frozen=True, tag="dt.local.app.call"):
    """An action to run as a message of the actor."""

    action: Callable[[], None]
