"""What Spark starts in place of a Python: has a fork of `fork_server` run the module, and waits for its end.

The design: `python -I -S fork_client.py SOCKET PYTHON MODULE WORDS...` imports nothing that takes time.
Where there is no server, or it refuses, this process becomes `PYTHON -m MODULE WORDS...`.

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


def main(place: str, python: str, words: list[str]) -> int:
    """Have `words` run, and return the exit code; see the module."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(place)
        variables = [f"{name}={value}" for name, value in os.environ.items()]
        told = os.fsencode("\0".join([os.getcwd(), str(len(words)), *words, *variables]))
        streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
        connection.sendmsg([struct.pack("!I", len(told))], [streams])
        connection.sendall(told)
        answer = connection.recv(1)
    except OSError:
        answer = b""
    if answer != b"y":
        os.execv(python, [python, "-m", *words])  # noqa: S606 - words that Spark gives
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
