"""Declarations of sources that installed connectors read: subclass one of these.

The problem: most systems can be read again from a position, others send each message once. The design: the
latter are push sources: their messages are stored when they come, before they are processed.

Called by applications and connectors through `drivetrain.api.sources`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from drivetrain.api.connectors.file_sources import BadRecordPolicy


@dataclass(frozen=True, kw_only=True)
class CustomSource:
    """A source of an installed connector: subclass it as a frozen dataclass with your system's settings.

    In a subclass, `bounded` is whether the input has an end, and `name` describes the input in plans and
    errors. `event_time` and `max_disorder` have the same meaning as for files.
    """

    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"

    @property
    def bounded(self) -> bool:
        """Whether the input has an end that is known when the application first starts."""
        return False

    @property
    def name(self) -> str:
        """The input, as plans and errors show it."""
        return ""


@dataclass(frozen=True, kw_only=True)
class PushSource(CustomSource):
    """A source that sends each message once: messages are stored when they come, and processed afterwards.

    Its connector overrides `open_feed`. Without `event_time`, the timestamp of a message is the time of
    storing it.
    """

    @property
    @abstractmethod
    def columns(self) -> str:
        """The columns of its messages, as DDL."""

    @property
    def caveat(self) -> str | None:
        """What can happen to messages before they are stored, for plans; None: nothing."""
        return None
