"""What an association asks of the remote that has it, and of the actor system of its process.

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


class Here(Protocol):
    """What associations ask of the actor system of this process."""

    @property
    def address(self) -> Address:
        """Its address."""

    @property
    def rng(self) -> Random:
        """Its randomness."""

    def undeliverable(self, envelope: Envelope, reason: UndeliverableReason) -> None:
        """Take back a message that will not arrive."""


class Owner(Protocol):
    """What an association asks of the remote that has it."""

    is_stopping: bool

    @property
    def settings(self) -> RemoteSettings:
        """The settings of all associations."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop in which all of it runs."""

    @property
    def context(self) -> Context:
        """The context of callbacks."""

    @property
    def system(self) -> Here:
        """The actor system of this process."""

    def is_watching_place(self, place: Address) -> bool:
        """Whether any life of the system at `place` is being monitored."""

    async def wait_dialed(self, place: Address, session: int) -> Link:
        """Connect to a place, for a session; raises `ConnectError`, `HandshakeError`, TimeoutError."""

    def system_over(self, address: Address, why: str) -> None:
        """An incarnation is over for good."""

    def greeted(self, address: Address) -> None:
        """A peer has proved in a handshake that it lives."""

    def refuse(self, envelope: Envelope, error: DrivetrainError) -> None:
        """Take back a message that turned out impossible to send."""

    def watch_again(self, peer: Address) -> None:
        """Send every open watch on the peer: its session is new, and it may know of none."""

    def take_in(self, session: Session, item: Item) -> None:
        """Deliver a message of a peer."""

    def acknowledged(self, address: Address) -> None:
        """A peer acknowledged what we had sent."""

    def heard(self, address: Address, count: int) -> None:
        """A peer answered a heartbeat."""
