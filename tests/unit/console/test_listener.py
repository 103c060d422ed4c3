"""The socket at which the console listens."""

from __future__ import annotations

import socket

from drivetrain.config import Config
from drivetrain.console.server import listener_of


def test_an_answer_in_two_parts_does_not_wait_for_the_acknowledgement_of_the_first() -> None:
    with (
        listener_of(Config.load(None, {}, {"console.port": "0"})) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
