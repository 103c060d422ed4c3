"""The users and tokens of the console, in a file whose contents are not enough to sign in.

Problem: a user who reads the file, or a backup of it, must not be able to use the console.

Design: passwords are kept as scrypt hashes, tokens, which are random, as SHA-256. Only the user that runs the
console can read the file. It is read again after a change, so a removed token is refused immediately.

Invariants:

1. Names are unique among users and among tokens.
2. A change that was confirmed survives a crash completely.

Called by `console.access.access` and `cli.consoles.console_access`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from drivetrain.console.access.roles import Role
from drivetrain.errors import UserError
from drivetrain.private_files import Stamp, make_private_directory, require_trusted, stamp_of
from drivetrain.runtime.durable_file import DurableFile

SCRYPT_N: Final = 2**15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
SHORTEST_PASSWORD: Final = 8
MOST: Final = 10_000

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_TOKEN: Final = "dtc_"  # noqa: S105 - how tokens begin, so that scanners find those that leaked


class User(msgspec.Struct, frozen=True):
    """A user; `salt` and `hash` are hexadecimal."""

    name: str
    role: str
    salt: str
    hash: str


class Token(msgspec.Struct, frozen=True):
    """A token; `sha256` is that of its text."""

    name: str
    role: str
    sha256: str


class Entries(msgspec.Struct, frozen=True):
    """All users and tokens."""

    users: tuple[User, ...] = ()
    tokens: tuple[Token, ...] = ()


class AccessFile:
    """The file `access` in the directory of the console."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._path: Final = directory / "access"
        self._file: Final = DurableFile(
            self._path,
            "the console's users and tokens",
            if_damaged="put back a copy of it, or delete it and add users and tokens anew",
            if_full="make room, and run the same command again",
        )
        self._stamp: Stamp | None = None
        self._entries = Entries()

    def entries(self) -> Entries:
        """Users and tokens as the file has them now; raises UserError, InputError."""
        stamp = stamp_of(self._path)
        if stamp != self._stamp:
            require_trusted(self._path, "the console's users and tokens")
            self._entries = self._file.read_json(Entries) or Entries()
            self._stamp = stamp
        return self._entries

    def add_user(self, name: str, role: Role, password: str) -> None:
        """Add a user, or change an existing one's role and password; raises UserError."""
        _require_name(name)
        if len(password) < SHORTEST_PASSWORD:
            raise UserError(
                "the password is too short",
                expected=f"at least {SHORTEST_PASSWORD} characters",
                remedy="choose a longer one",
            )
        salt = secrets.token_bytes(16)
        user = User(name, role.shown, salt.hex(), scrypt(password, salt).hex())
        entries = self.entries()
        self._write(msgspec.structs.replace(entries, users=(*_without(entries.users, name), user)))

    def add_token(self, name: str, role: Role) -> str:
        """Add a token, or replace the one of that name; returns its text, which is kept nowhere."""
        _require_name(name)
        text = _TOKEN + secrets.token_urlsafe(32)
        token = Token(name, role.shown, sha256(text))
        entries = self.entries()
        self._write(msgspec.structs.replace(entries, tokens=(*_without(entries.tokens, name), token)))
        return text

    def remove(self, name: str) -> None:
        """Remove the user and the token of that name; raises UserError when there is neither."""
        entries = self.entries()
        left = Entries(_without(entries.users, name), _without(entries.tokens, name))
        if left == entries:
            known = {user.name for user in entries.users} | {token.name for token in entries.tokens}
            names = ", ".join(sorted(known))
            raise UserError(
                "there is neither a user nor a token of this name",
                where=name,
                expected=f"one of {names}" if names else None,
                remedy="`drivetrain console-access list` shows all",
            )
        self._write(left)

    def _write(self, entries: Entries) -> None:
        if len(entries.users) + len(entries.tokens) > MOST:
            raise UserError("there are too many users and tokens", expected=f"at most {MOST}")
        make_private_directory(self._directory, "the directory of the console")
        self._file.write(msgspec.json.encode(entries))


def scrypt(password: str, salt: bytes) -> bytes:
    """The hash of a password; takes 32 MiB and a tenth of a second, on purpose."""
    return hashlib.scrypt(
        password.encode(), salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=2**27, dklen=32
    )


def sha256(text: str) -> str:
    """The hash of a random text."""
    return hashlib.sha256(text.encode()).hexdigest()


E = TypeVar("E", User, Token)


def _without(entries: tuple[E, ...], name: str) -> tuple[E, ...]:
    return tuple(entry for entry in entries if entry.name != name)


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise UserError(
            "not a name for a user or a token",
            where=repr(name[:80]),
            expected="up to 64 letters, digits and _ . @ -, beginning with a letter, a digit or _",
            remedy="choose another",
        )
