"""The part of an event loop that would reach the real world, all of it refused.

Why: a simulated process that opens a real socket, waits for a real signal or starts a real program is not
reproducible; the error names what to use instead.

Called by code that tries one of these; `SimulatedLoop` derives from it.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from drivetrain.simulator.simulation_errors import RealWorldError


def _refusal(name: str) -> Any:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise RealWorldError(
            f"loop.{name} would reach the real world from a simulation",
            remedy="take transport and disk as arguments, and hand in those of the simulated node",
        )

    return refuse


class NoRealWorld(asyncio.AbstractEventLoop):
    """An event loop without input and output; each of these methods raises `RealWorldError`."""

    add_reader = _refusal("add_reader")
    add_signal_handler = _refusal("add_signal_handler")
    add_writer = _refusal("add_writer")
    connect_accepted_socket = _refusal("connect_accepted_socket")
    connect_read_pipe = _refusal("connect_read_pipe")
    connect_write_pipe = _refusal("connect_write_pipe")
    create_connection = _refusal("create_connection")
    create_datagram_endpoint = _refusal("create_datagram_endpoint")
    create_server = _refusal("create_server")
    create_unix_connection = _refusal("create_unix_connection")
    create_unix_server = _refusal("create_unix_server")
    getaddrinfo = _refusal("getaddrinfo")
    getnameinfo = _refusal("getnameinfo")
    remove_reader = _refusal("remove_reader")
    remove_signal_handler = _refusal("remove_signal_handler")
    remove_writer = _refusal("remove_writer")
    sendfile = _refusal("sendfile")
    set_default_executor = _refusal("set_default_executor")
    sock_accept = _refusal("sock_accept")
    sock_connect = _refusal("sock_connect")
    sock_recv = _refusal("sock_recv")
    sock_recv_into = _refusal("sock_recv_into")
    sock_recvfrom = _refusal("sock_recvfrom")
    sock_recvfrom_into = _refusal("sock_recvfrom_into")
    sock_sendall = _refusal("sock_sendall")
    sock_sendfile = _refusal("sock_sendfile")
    sock_sendto = _refusal("sock_sendto")
    start_tls = _refusal("start_tls")
    subprocess_exec = _refusal("subprocess_exec")
    subprocess_shell = _refusal("subprocess_shell")
