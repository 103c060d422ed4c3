"""The base of sinks that are declared outside of `drivetrain.api.sinks`.

The problem: connectors of other packages, and those of Drivetrain that use nothing else, need a class for
their declarations which the planner knows. The design: a frozen dataclass with the few properties that plans
and errors show; a subclass adds the settings of its system.

Called by declarations, through `drivetrain.api.sinks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

Guarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]


@dataclass(frozen=True, kw_only=True)
class CustomSink:
    """A sink of an installed connector: subclass it as a frozen dataclass with your system's settings.

    A subclass declares its `guarantee`, and describes its destination in `name`, for plans and errors.
    """

    guarantee: ClassVar[Guarantee] = "at least once"

    @property
    def name(self) -> str:
        """The destination, as plans and errors show it."""
        return ""

    @property
    def place(self) -> str | None:
        """The place that no other sink of an application may write to; None: several may share it."""
        return None
