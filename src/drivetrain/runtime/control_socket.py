"""The socket by which other processes of the user send requests to an application that runs embedded.

Problem: `drivetrain run` has no server, and its owner wants to change the application that it runs. Data from
a socket may be hostile, huge, early or endless, and must not end the run. A run that was killed leaves its
socket behind, and a path longer than about 100 bytes cannot be bound.

Design: a Unix socket `control` in the application's state directory, which belongs to its owner alone; the
socket has mode 0600, and other users than the owner and root are not answered. A connection carries one
request and its answer, one line of JSON each. The socket is created under another name and renamed, so it
never has another mode. It replaces one that was left behind: the lock of the state directory shows whether a
process runs the application. A path that is too long is reached by a short link, which lives only while it is
used.

Invariants:

1. Whatever a client sends, it gets an answer or its connection is closed; nothing is raised to the run.
2. A client that sends or reads nothing holds one of few threads, for a few seconds at most.

Called by `embedded`, which opens it, and by processes that send requests (`runtime.control_requests`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from drivetrain.durable import writing
from drivetrain.errors import UnavailableError

log = logging.getLogger(__name__)

NAME: Final = "control"
LARGEST_BYTES: Final = 1 << 20
"""The longest request."""
LARGEST_ANSWER_BYTES: Final = 64 << 20
"""The longest answer: the figures of very many fragments over a quarter of an hour."""
_LONGEST_PATH: Final = 100
_PATIENCE_S: Final = 5.0
"""How long a client may take to send its request, and to read its answer."""
_MOST_CLIENTS: Final = 16
_LOOK_S: Final = 0.5
"""How long a process may take to accept a connection of one that only looks whether it runs."""
_CREDENTIALS: Final = struct.Struct("3i")


class NotRunningError(UnavailableError):
    """No process runs the application embedded: it has ended, or was killed."""

    code = "not-running"


class ControlSocket:
    """Answers requests while it is open: `answer` is given a line and gives one, in threads of its own.

    One process at a time: the one that holds the lock of the state directory `home`.
    """

    def __init__(self, home: Path, answer: Callable[[bytes], bytes]) -> None:
        self._path: Final = home / NAME
        self._answer: Final = answer
        self._clients: Final = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._is_closed = False
        with writing("the control socket", self._path):
            self._listening: Final = _listening_at(self._path)
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def close(self) -> None:
        """Stop answering requests."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:
                if not self._is_closed:
                    log.warning("the control socket: %s", error)
                    time.sleep(0.1)  # too many open files, perhaps: others will be closed
                continue
            if not self._clients.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="control", daemon=True).start()
            except RuntimeError as error:  # as many threads as the system allows: others will end
                log.warning("the control socket: %s", error)
                connection.close()
                self._clients.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                if _may_ask(connection):
                    line = _read_line(connection, time.monotonic() + _PATIENCE_S, LARGEST_BYTES)
                    answer = self._answer(line)
                    connection.settimeout(_PATIENCE_S)
                    connection.sendall(answer + b"\n")
        except (OSError, UnavailableError) as error:
            log.debug("a client of the control socket: %s", error)
        except Exception:
            log.exception("a request over the control socket")
        finally:
            self._clients.release()


def asked(home: Path, request: bytes, timeout_s: float) -> bytes:
    """The answer of the application that runs in the state directory `home` to a request, both one line.

    Raises NotRunningError when no process listens there, UnavailableError when no answer comes in time.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection, _short(home) as short:
            connection.settimeout(timeout_s)
            connection.connect(str(short / NAME))
            connection.sendall(request + b"\n")
            return _read_line(connection, time.monotonic() + timeout_s, LARGEST_ANSWER_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunningError(
            "the application does not run embedded here",
            where=str(home),
            got="no process listens at its control socket",
            remedy="start it with drivetrain run; if it has only just started, try again in a moment",
        ) from error
    except OSError as error:
        raise UnavailableError(
            "the application has not answered", where=str(home), got=str(error), remedy="try again"
        ) from error


def is_running_at(home: Path) -> bool:
    """Whether a process runs the application of the state directory `home`; it is asked nothing."""
    try:
        with socket.socket(socket.AF_UNIX) as connection, _short(home) as short:
            connection.settimeout(_LOOK_S)
            connection.connect(str(short / NAME))
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # it is there, and busy
    return True


def _listening_at(path: Path) -> socket.socket:
    """A socket that listens at `path`; what was there is replaced."""
    for left in path.parent.glob(f".{NAME}-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    aside = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=path.parent))
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _short(aside) as short:
            listening.bind(str(short / NAME))
        (aside / NAME).chmod(0o600)
        listening.listen(_MOST_CLIENTS)
        os.replace(aside / NAME, path)
    except BaseException:
        listening.close()
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return listening


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[Path]:
    """A path of the directory that is short enough to bind or connect to a socket in it."""
    if len(os.fsencode(directory)) + len(NAME) < _LONGEST_PATH:
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="dt-", dir=_short_temporary()) as place:
        link = Path(place) / "d"
        link.symlink_to(directory)
        yield link


def _short_temporary() -> str | None:
    """Where temporary directories have short paths; None: in the usual place."""
    return None if len(os.fsencode(tempfile.gettempdir())) < _LONGEST_PATH // 2 else "/tmp"  # noqa: S108 - a private directory in it


def _may_ask(connection: socket.socket) -> bool:
    """Whether the client is the owner or root, on systems that identify it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return uid in (os.geteuid(), 0)


def _read_line(connection: socket.socket, deadline_s: float, most_bytes: int) -> bytes:
    """A line without its end; raises UnavailableError when it is too long, late or cut off."""
    parts: list[bytes] = []
    length = 0
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise UnavailableError("a message over the control socket has not come in time")
        connection.settimeout(left_s)
        part = connection.recv(65_536)
        length += len(part)
        if not part or length > most_bytes:
            raise UnavailableError("a message over the control socket was cut off or too long")
        line, end, _ = part.partition(b"\n")
        parts.append(line)
        if end:
            return b"".join(parts)
