"""The stream of another application: the declaration that a user writes.

The problem: a result of one application is the input of another, perhaps of another team, which starts, stops
and changes on its own. If it were passed on in files, it would lose its clock.

The design: a source names the application and one of its processors. The other application keeps the messages
that this processor emits, and their clock, in a channel until this application has read them. The declaration
also decides what happens when this application is slow or stopped: the other application waits, or drops the
oldest messages and counts them.

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.

Called by applications through `drivetrain.api.sources`; read by the planner and by layer `spark`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from drivetrain.api.connectors.file_sources import Schema
from drivetrain.api.durations import duration_text, milliseconds
from drivetrain.errors import GraphError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True, kw_only=True)
class ApplicationStream:
    """The messages that the processor `stream` of the application `application` emits, with its clock.

    `application` is a name, or an id if several applications have that name, in the same state directory. The
    columns are those of the stream; `schema` declares them, so that the plan can be checked while the other
    application does not run. Messages keep their timestamps, and windows fire by the other application's
    clock. The source begins when it subscribes, at its first start, and ends with the other application's
    input.

    While this application is slow or stopped, the other one keeps up to `subscription.keep-bytes` of unread
    messages for it, and then waits. With `drop_after_ms` it does not wait: it drops messages that have not
    been read for that time, in ms, and the oldest ones beyond these bytes; both applications show how many.
    """

    application: str
    stream: str
    schema: Schema | None = None
    drop_after_ms: int | None = None

    event_time: ClassVar[str | None] = None
    max_disorder: ClassVar[str | None] = None
    on_bad_record: ClassVar[Literal["fail"]] = "fail"
    bounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for what, given in (("the name of an application", self.application), ("a processor", self.stream)):
            if not _NAME.fullmatch(given):
                raise GraphError(f"not {what}", where="sources.application", got=repr(given))

    @property
    def name(self) -> str:
        """The application and processor that are read, as plans and errors show them."""
        policy = "" if self.drop_after_ms is None else f", dropped after {duration_text(self.drop_after_ms)}"
        return f"{self.application}/{self.stream}{policy}"


def application(
    application: str, stream: str, *, schema: Schema | None = None, drop_after: str | None = None
) -> ApplicationStream:
    """The messages of a processor of another, running application; see `ApplicationStream`.

    Raises `GraphError` for invalid arguments.

    >>> application("shop", "hourly").bounded
    False
    >>> application("shop", "hourly", drop_after="1 h").name
    'shop/hourly, dropped after 1 h'
    """
    drop_after_ms = None if drop_after is None else milliseconds(drop_after, "drop_after")
    return ApplicationStream(
        application=application, stream=stream, schema=schema, drop_after_ms=drop_after_ms
    )
