"""An application in the registry of the masters: its states, and the permitted transitions.

`TRANSITIONS` lists what each event does to a state; every other event is refused with `RefusedError`.

Called by `applications`, and by masters and clients, which read records.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

import msgspec

from drivetrain.errors import DrivetrainError


class ApplicationState(Enum):
    """The life of an application in the registry."""

    PENDING = "pending"  # accepted; its application master is not registered (yet, or again)
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def is_over(self) -> bool:
        """Whether no part of it runs any more."""
        return self in (ApplicationState.SUCCEEDED, ApplicationState.FAILED, ApplicationState.KILLED)


class RefusedError(DrivetrainError):
    """A request does not fit the registry; `reason` is the stable code in the answer."""

    code = "application-refused"
    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        reason: str = "refused",
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        self.reason = reason


class ApplicationRecord(msgspec.Struct, frozen=True, array_like=True):
    """The registry's record of an application; `spec` is opaque here. Times are ms since the Unix epoch.

    `worker_id` and `launch_id` identify where the application master of `epoch` was launched; `deaths_ms` are
    the times of application masters' deaths within the window; `result` and `restarts` are the last reported
    ones. `end` numbers the ends of applications in their order, independent of the wall clock.
    """

    app_id: str
    name: str
    submission_id: str
    spec: bytes
    code: str
    state: ApplicationState
    epoch: int
    submitted_ms: int
    ended_ms: int | None = None
    worker_id: str | None = None
    worker: str | None = None
    launch_id: str | None = None
    why: str | None = None
    clock_ms: int | None = None
    graph_version: int = 0
    restarts: bytes | None = None
    result: bytes | None = None
    deaths_ms: tuple[int, ...] = ()
    end: int = 0


class RecordEvent(Enum):
    """The events of a record."""

    LAUNCH = "is launched"
    REGISTER = "registers its application master"
    REPORT = "reports"
    DIE = "loses its application master"
    KILL = "is killed"
    RESTART = "is restarted"


_S = ApplicationState
_H = RecordEvent
_OVER: Final = (_S.SUCCEEDED, _S.FAILED, _S.KILLED)

TRANSITIONS: Final[Mapping[tuple[ApplicationState, RecordEvent], tuple[ApplicationState, ...]]] = (
    MappingProxyType(
        {
            # (state, happening): the states that may follow
            (_S.PENDING, _H.LAUNCH): (_S.PENDING,),
            (_S.PENDING, _H.REGISTER): (_S.ACTIVE,),
            (_S.ACTIVE, _H.REGISTER): (_S.ACTIVE,),  # with a new leader
            (_S.PENDING, _H.REPORT): (_S.ACTIVE, *_OVER),
            (_S.ACTIVE, _H.REPORT): (_S.ACTIVE, *_OVER),
            (_S.PENDING, _H.DIE): (_S.PENDING, _S.FAILED),
            (_S.ACTIVE, _H.DIE): (_S.PENDING, _S.FAILED),
            (_S.PENDING, _H.KILL): (_S.KILLED,),
            (_S.ACTIVE, _H.KILL): (_S.KILLED,),
            **{(state, _H.RESTART): (_S.PENDING,) for state in _S},
        }
    )
)
