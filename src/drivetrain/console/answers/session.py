"""Signing in: the bodies of requests and answers.

Called by `console.handlers.session`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name and a password."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    password: Annotated[str, Meta(min_length=1, max_length=1000)]


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """The user that is signed in, by which means (link, token, session, none), and with which role (nobody,
    guest, user, admin).

    `takes_passwords` is true if any user has a password; otherwise a browser needs the printed address.
    """

    name: str
    role: str
    means: str
    takes_passwords: bool
