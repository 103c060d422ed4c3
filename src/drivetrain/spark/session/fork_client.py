"""The program that Spark starts instead of Python: a fork of `fork_server` runs the module for it.

The design: `python -I -S fork_client.py SOCKET PYTHON MODULE ARGUMENTS...` imports nothing that takes time.
Without a server, or if it refuses, this process becomes `PYTHON -m MODULE ARGUMENTS...`.

Invariants:

1. The fork ends when this process does.
2. This process ends when the fork does, with its exit code, and keeps none of its streams open.

Run as a program by the script of `python_launcher`.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys


def main(place: str, python: str, arguments: list[str]) -> int:
    """Run `arguments`, a module and its arguments, and return the exit code; see the module docstring."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(place)
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        content = os.fsencode("\0".join([os.getcwd(), str(len(arguments)), *arguments, *variables]))
        streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
        connection.sendmsg([struct.pack("!I", len(content))], [streams])
        connection.sendall(content)
        answer = connection.recv(1)
    except OSError:
        answer = b""
    if answer != b"y":
        os.execv(python, [python, "-m", *arguments])  # noqa: S606 - arguments from Spark
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    try:
        status = connection.recv(4, socket.MSG_WAITALL)
    except OSError:
        status = b""
    if len(status) < 4:
        return 1  # the server was killed
    (code,) = struct.unpack("!i", status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
