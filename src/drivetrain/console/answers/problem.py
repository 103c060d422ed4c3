"""The body of an answer other than 2xx: problem details by RFC 9457, with our codes and remedies.

Called by `console.problems`.
"""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem: `type` and `code` are stable, `title` is what `detail` says of this occasion, in short.

    `detail` is what happened; `where`, `expected`, `got` and `remedy` are as in every error of Drivetrain.
    `user_traceback` is the traceback of the application's own code. All are text, never markup.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    where: str | None = None
    expected: str | None = None
    got: str | None = None
    remedy: str | None = None
    user_traceback: str | None = None
