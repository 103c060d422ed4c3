"""Cursors: the position at which a list continues, as text that clients send back without parsing it.

Problem: with an offset into a list that changes, clients miss items or see them twice; and once clients parse
a cursor, its format cannot change.

Design: a cursor is the position (a JSON value) with the filters that it belongs to, in URL-safe base64. It is
not signed: everything in it is something that a client may choose, and is checked like any other parameter.

Called by `console.handlers`.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from drivetrain.console.problems import RequestError


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position after which a list continues; `kind` identifies the list and its filters."""

    kind: str
    position: str


def written(cursor: Cursor) -> str:
    """The cursor as text.

    >>> read(written(Cursor("applications", "wc-1")), "applications")
    'wc-1'
    """
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).rstrip(b"=").decode()


def read(text: str, kind: str) -> str:
    """The position of a cursor of this kind; raises RequestError for anything else."""
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise bad(str(error)) from error
    if cursor.kind != kind:
        raise bad("a cursor of another list, or of other filters")
    return cursor.position


def bad(got: str) -> RequestError:
    """The error of a cursor that cannot be used, because of `got`."""
    return RequestError(
        "this cursor cannot be used",
        code="bad-cursor",
        where="cursor",
        expected="the `next` of an earlier page of the same list, with the same filters",
        got=got,
        remedy="begin with the first page, without a cursor",
    )
