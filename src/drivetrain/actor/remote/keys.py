"""The keys by which two systems authenticate each other.

Problem: a system may share one key with all peers, or a different one with each kind of peer; and keys must
be replaceable while systems run.

Design: a handshake asks a `Keys` for the keys that this system shares with the peer, by the name that the
peer claims for its system. A peer that proves one of them counts as the system of that name: names are only
as trustworthy as their keys. Several keys are tried at once, so that an old and a new secret can be in use
together. `SharedSecrets` is the simple case: the same secrets for every peer.

Invariants:
1. `keys_for` returns no key for a peer that must not connect.
2. At most `MOST_KEYS` keys are returned for one peer.

Called by handshakes; the keys of a cluster are in `drivetrain.cluster.access.keyring`.
"""

from __future__ import annotations

from typing import Final, Protocol

from drivetrain.actor.remote.auth import MIN_SECRET_LENGTH
from drivetrain.errors import ConfigError

MOST_KEYS: Final = 4


class Keys(Protocol):
    """The keys of one system."""

    def keys_for(self, peer: str) -> tuple[bytes, ...]:
        """The keys shared with the system of that name, the preferred one first; empty: it is refused."""


class SharedSecrets:
    """One secret for all peers, or a new one and the one that it replaces; the first is preferred."""

    def __init__(self, *secrets: str) -> None:
        for secret in secrets:
            require_secret_length(secret)
        self._keys: Final = tuple(secret.encode() for secret in secrets)[:MOST_KEYS]

    def keys_for(self, peer: str) -> tuple[bytes, ...]:
        """The same for every peer."""
        return self._keys

    def __repr__(self) -> str:
        return f"<{len(self._keys)} secrets>"


def require_secret_length(secret: str) -> None:
    """Raise ConfigError for a secret that is too short."""
    if len(secret) < MIN_SECRET_LENGTH:
        raise ConfigError(
            "the shared secret is too short",
            expected=f"at least {MIN_SECRET_LENGTH} characters",
            got=f"{len(secret)} characters",
            remedy="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
