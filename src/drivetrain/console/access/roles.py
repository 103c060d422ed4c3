"""The roles of the console, and the caller of a request.

A guest sees figures and findings, without the texts of errors. A user also reads errors, logs and code, which
may quote messages, and submits, ends and restarts applications. An admin also sees the configuration.

Called by `console.route` and the modules of `console.access`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """What a caller may do; each role may do what the ones before it may."""

    NOBODY = 0
    GUEST = 1
    USER = 2
    ADMIN = 3

    @property
    def shown(self) -> str:
        """The role in words."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: its name and role, how it signed in, and its address.

    `means` is link, token, session or none; `proof` is the hash of the secret that was presented.
    """

    name: str
    role: Role
    means: str
    address: str
    proof: str = ""

    @property
    def sees_errors(self) -> bool:
        """Whether the texts of errors may be shown: they quote messages and code."""
        return self.role >= Role.USER


def role_of(name: str) -> Role:
    """The role of that name; what is not one is none."""
    return next((role for role in Role if role.shown == name), Role.NOBODY)
