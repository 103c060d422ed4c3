"""The Python program with which Spark starts its workers, without wasted imports.

The problem: Spark puts its own zipped copy of PySpark first on the path of every Python process it starts.
Modules in a zip file have no stored bytecode, so each process compiles PySpark again: 0.5 s of CPU, for each
kind of worker, for every query with a Python source, at every start. Even without the zip, imports take as
long.

The design: on this machine, workers run the same Python as the driver, which has the same PySpark installed,
with its bytecode. So Spark gets a script of a few lines that removes the zip from the path and has
`fork_server` run the module, or becomes that Python; `worker_daemon` runs in the place of PySpark's. The
script also makes workers ignore Ctrl-C: a terminal sends it to every process of the group, and it would kill
a process that plans a source, with a traceback, while the driver drains the batch.

Java and Python talk through Unix sockets in a folder which only this user may enter. Through TCP, Spark's
default, a task that exchanges small messages with Python waits 40 ms for a delayed acknowledgement.

Measured on two busy cores: query start to the end of its first four small batches from 14 s to 6 s for the
first query, from 3.1 s to 2.1 s for a later one, without the zip. Decision 0065 has the figures of forks.

Called by `java_start` and `spark_session`, for local masters only: other machines have other paths.
"""

from __future__ import annotations

import atexit
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Final

from drivetrain.runtime.temporary_folders import make_temporary_folder
from drivetrain.spark.session.installed_spark import spark_folder

_HERE: Final = Path(__file__).resolve().parent
_END_S: Final = 5.0
DIRECTORY_VARIABLE: Final = "_DRIVETRAIN_DIRECTORY"
"""The variable with the directory in which Spark's Python processes work; without it, it is Java's."""
_SCRIPT: Final = """#!/bin/sh
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip|*/py4j-*-src.zip) ;;
        *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
if [ -n "${directory}" ]; then
    cd "${directory}" || exit 1
fi
trap '' INT
if [ "$1" = -m ]; then
    shift
    if [ "$1" = pyspark.daemon ]; then
        shift
        set -- {daemon} "$@"
    fi
    exec {python} -I -S {client} {server} {python} "$@"
fi
exec {python} "$@"
"""
_DAEMON: Final = "drivetrain.spark.session.worker_daemon"
IGNORING_CTRL_C: Final = ("/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh")
_CHOSEN: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""The values that Spark sets for its Python processes by default."""

_SOCKETS: Final = "drivetrain-sockets-"
_LONGEST_PARENT: Final = 103 - len(f"/{_SOCKETS}12345678/.{uuid.UUID(int=0)}.sock")
"""In bytes: the path of a socket has at most 103 on some systems."""
_SHORT: Final = "/tmp"  # noqa: S108 - for a folder that only this user may enter

_made: list[str] = []
_sockets: list[str] = []


def worker_python() -> str:
    """The path of a program that is this Python for Spark's workers. The process removes it at its end; if
    it is killed, the next one that makes its own program does.

    Returns this Python itself if PySpark is not installed as a package, or there is no `/bin/sh`.
    """
    if not os.path.isfile(spark_folder() / "__init__.py") or not os.access("/bin/sh", os.X_OK):
        return sys.executable
    if not _made:
        folder = make_temporary_folder("drivetrain-python-")
        script, server = folder / "python", folder / "server"
        names = {
            "python": sys.executable,
            "client": _HERE / "fork_client.py",
            "server": server,
            "daemon": _DAEMON,
            "directory": DIRECTORY_VARIABLE,
        }
        script.write_text(_SCRIPT.format(**{name: shlex.quote(str(path)) for name, path in names.items()}))
        script.chmod(0o700)
        _start_server(server)
        _made.append(str(script))
    return _made[0]


def socket_settings() -> dict[str, str]:
    """Spark's settings with which it talks to Python on this machine through Unix sockets; none where no
    folder has a path that is short enough for them.
    """
    if not _sockets:
        found = [parent for parent in (tempfile.gettempdir(), _SHORT) if _can_have_sockets(parent)]
        if not found:
            return {}
        _sockets.append(str(make_temporary_folder(_SOCKETS, Path(found[0]))))
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _sockets[0],
    }


def _can_have_sockets(parent: str) -> bool:
    return len(os.fsencode(parent)) <= _LONGEST_PARENT and os.access(parent, os.W_OK | os.X_OK)


def _start_server(place: Path) -> None:
    """Start a fork server that listens at `place`; if that is impossible, clients work without it."""
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(str(place))
        except OSError:
            return  # the path of the temporary folder is too long for a socket
        listening.listen(128)
        number = listening.fileno()
        known = _CHOSEN | os.environ | {"PYTHONUNBUFFERED": "YES"}
        path = [entry for entry in known.pop("PYTHONPATH", "").split(os.pathsep) if entry]
        process = subprocess.Popen(
            [*IGNORING_CTRL_C, sys.executable, str(_HERE / "fork_server.py"), str(number), *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=known,
            pass_fds=[number],
        )
    atexit.register(_end_server, process)


def _end_server(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()  # the server ends when its standard input does
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
