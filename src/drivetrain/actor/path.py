"""Addresses of actor systems and paths of actors.

Problem: a reference must mean one actor for ever. A name can be reused after its actor has stopped,
and a process can restart on the same host and port; a message meant for the old one must not reach
the new one.

Design: an `Address` includes the incarnation of the system, drawn at random at each start, and an
`ActorPath` includes the uid of the actor, never used twice in one incarnation. Paths have one text
form, used on the wire and in logs, and the actors of a system that cannot be reached from outside have
no host:

    drivetrain://master@10.0.0.1:7070~83641/user/apps/wc#17
    drivetrain://local~83641/user/apps/wc#17

A path with uid 0 (no `#`) means "the actor with this name now", an address with incarnation 0 (no `~`)
"the current incarnation"; only lookups use them.

Invariants:
1. `ActorPath.parse(str(path)) == path`, and the same for addresses.
2. There is a host exactly if there is a port.
3. Names never contain "/", "#" or white space, so that the text form is unambiguous.

Called by references, the codec and the remote layer.
Source: actor paths and address uids as in Akka.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from drivetrain.actor.actor_errors import InvalidPathError

SCHEME: Final = "drivetrain://"
ANY_UID: Final = 0
ANY_INCARNATION: Final = 0
ASKS: Final = "asks"
"""The first name of the paths of asks: "/asks/$12#12" is an ask that waits."""
MAX_NAME_LENGTH: Final = 200
LONGEST_PATH: Final = 65_536
"""Characters of a path as text."""
_LONGEST_CACHED: Final = 512

_NAME: Final = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$.+=,:@~-]*")
_UID: Final = re.compile(r"[0-9]{1,19}")
_SYSTEM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_ADDRESS: Final = re.compile(
    r"drivetrain://(?P<system>[A-Za-z0-9_][A-Za-z0-9_.-]*)"
    r"(?:@(?P<host>\[[0-9A-Za-z:.%]+\]|[^\s/@:#~\[\]]+):(?P<port>[0-9]{1,5}))?"
    r"(?:~(?P<incarnation>[1-9][0-9]{0,19}))?"
)


def is_actor_name(name: str) -> bool:
    """Whether `name` can be part of a path."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def is_system_name(name: str) -> bool:
    """Whether `name` can be an actor system's."""
    return len(name) <= MAX_NAME_LENGTH and _SYSTEM.fullmatch(name) is not None


class Address(msgspec.Struct, frozen=True):
    """One life of one actor system; `host` and `port` are None when it cannot be reached from outside."""

    system: str
    host: str | None
    port: int | None
    incarnation: int

    def __post_init__(self) -> None:
        if (self.host is None) != (self.port is None):
            raise InvalidPathError(
                "an address needs a host and a port, or neither", got=f"{self.host!r} and {self.port!r}"
            )

    @property
    def is_remote_capable(self) -> bool:
        """Whether other processes can reach this address."""
        return self.host is not None

    def __str__(self) -> str:
        life = f"~{self.incarnation}" if self.incarnation != ANY_INCARNATION else ""
        if self.host is None:
            return f"{SCHEME}{self.system}{life}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}{self.system}@{host}:{self.port}{life}"

    def matches(self, other: Address) -> bool:
        """Whether this is `other`, or the same place with any incarnation."""
        if self.incarnation != ANY_INCARNATION:
            return self == other
        return (self.system, self.host, self.port) == (other.system, other.host, other.port)

    @staticmethod
    def parse(text: str) -> Address:
        """Read the text form of an address; raises `InvalidPathError`."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise InvalidPathError(
                "not the address of an actor system",
                expected="drivetrain://system@host:port~incarnation",
                got=repr(text),
            )
        return _address(match)


class ActorPath(msgspec.Struct, frozen=True):
    """Where an actor is: its system's address, the names from the root down, and its own uid."""

    address: Address
    names: tuple[str, ...]
    uid: int

    # One uid is one actor of an incarnation, so it alone spreads well, and unlike the hash of a string
    # it is the same in every process.
    def __hash__(self) -> int:
        return self.uid

    @property
    def name(self) -> str:
        """The last name; "/" for the root."""
        return self.names[-1] if self.names else "/"

    @property
    def local(self) -> str:
        """The part below the address, without the uid: "/user/apps/wc"."""
        return "/" + "/".join(self.names)

    def __str__(self) -> str:
        uid = f"#{self.uid}" if self.uid != ANY_UID else ""
        return f"{self.address}{self.local}{uid}"

    @staticmethod
    def parse(text: str) -> ActorPath:
        """Read the text form of a path; raises `InvalidPathError`."""
        if len(text) > LONGEST_PATH:
            raise _not_a_path(text)
        return _cached_path(text) if len(text) <= _LONGEST_CACHED else _parse_path(text)


def _parse_path(text: str) -> ActorPath:
    match = _ADDRESS.match(text)
    if match is None or text[match.end() : match.end() + 1] != "/":
        raise _not_a_path(text)
    rest, hash_sign, uid = text[match.end() + 1 :].partition("#")
    names = tuple(rest.split("/")) if rest else ()
    if not all(map(is_actor_name, names)) or (hash_sign and _UID.fullmatch(uid) is None):
        raise _not_a_path(text)
    return ActorPath(_address(match), names, int(uid) if hash_sign else ANY_UID)


# Every message between two processes carries paths, and a process talks to few actors at a time.
_cached_path: Final = lru_cache(maxsize=8192)(_parse_path)


def _not_a_path(text: str) -> InvalidPathError:
    return InvalidPathError(
        "not the path of an actor",
        expected="drivetrain://system@host:port~incarnation/user/name#uid",
        got=repr(text[:300]),
    )


def _address(match: re.Match[str]) -> Address:
    host, port = match["host"], match["port"]
    if host is not None and host.startswith("["):
        host = host[1:-1]
    incarnation = int(match["incarnation"] or ANY_INCARNATION)
    if port is not None and int(port) > 65_535:
        raise InvalidPathError("not a port", expected="at most 65535", got=port)
    return Address(match["system"], host, None if port is None else int(port), incarnation)
