"""Ports for servers that tests start, which no other process takes between the choice and the start.

The system gives a client's connection any free port of a certain range, so a port of that range that is
free now may be in use a moment later. The ports here are below that range, and two runs of pytest on one
machine begin at different ones.
"""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 10_000, 32_000
_counted = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A port of the loopback interface that is free, and that this function has not returned before."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        ports = [FIRST + next(_counted) % (LAST - FIRST) for _ in range(count)]
        if ports[-1] - ports[0] == count - 1 and all(map(_is_free, ports)):
            return ports[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
