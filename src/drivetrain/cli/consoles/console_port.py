"""The port of a console that another command starts: the configured one, or a free one.

Called by `local`, `local_cluster` and `run_console`.
"""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from drivetrain.console.addresses import ConsoleAddress
from drivetrain.errors import UserError

HOST: Final = "127.0.0.1"


def listens(console: ConsoleAddress) -> bool:
    """Whether the console takes connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, urlsplit(console.address).port)) == 0


def free_port(wanted: int) -> int:
    """The port `wanted` if it is free, else another one that is."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError("there is no free port for a console", remedy="run without a console")
