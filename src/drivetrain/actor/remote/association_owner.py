"""The interfaces of the remote and the actor system that an association uses.

Called by `association`, implemented by `remote.Remote` and `system.ActorSystem`.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from random import Random
from typing import Protocol

from drivetrain.actor.path import Address
from drivetrain.actor.provider import Envelope, UndeliverableReason
from drivetrain.actor.remote.link import Link
from drivetrain.actor.remote.remote_settings import RemoteSettings
from drivetrain.actor.remote.session import Session
from drivetrain.actor.remote.wire import Item
from drivetrain.errors import DrivetrainError


class LocalSystem(Protocol):
    """The part of this process's actor system that associations use."""

    @property
    def address(self) -> Address:
        """Its address."""

    @property
    def rng(self) -> Random:
        """Its randomness."""

    def undeliverable(self, envelope: Envelope, reason: UndeliverableReason) -> None:
        """Handle a message that will not arrive."""


class AssociationOwner(Protocol):
    """The part of the remote that its associations use."""

    is_stopping: bool

    @property
    def settings(self) -> RemoteSettings:
        """The settings of all associations."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    @property
    def context(self) -> Context:
        """The context of callbacks."""

    @property
    def system(self) -> LocalSystem:
        """The actor system of this process."""

    def is_watching_place(self, place: Address) -> bool:
        """Whether any incarnation of the system at `place` is monitored."""

    async def wait_dialed(self, place: Address, session: int) -> Link:
        """Connect to a place, for a session; raises `ConnectError`, `HandshakeError`, TimeoutError."""

    def system_over(self, address: Address, why: str) -> None:
        """An incarnation has ended for good."""

    def greeted(self, address: Address) -> None:
        """A peer has completed a handshake, which proves that it is alive."""

    def refuse(self, envelope: Envelope, error: DrivetrainError) -> None:
        """Handle a message that turned out to be impossible to send."""

    def watch_again(self, peer: Address) -> None:
        """Send every open watch on the peer: its session is new, and it may have no watches."""

    def take_in(self, session: Session, item: Item) -> None:
        """Deliver a message of a peer."""

    def acknowledged(self, address: Address) -> None:
        """A peer acknowledged what we had sent."""

    def answered(self, address: Address, count: int) -> None:
        """A peer answered a heartbeat."""
